"""RLJob: a checked job, ready to be shown and submitted."""

from __future__ import annotations

import html
import os
import posixpath
import sys
import sysconfig
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from dlrl_core.api.connection import Connection, connect
from dlrl_core.api.job_handle import JobHandle, JobResult, JobStatus
from dlrl_core.errors import ClusterError, DlrlError, JobError, JobExistsError, PlanError, SpecError
from dlrl_core.failover import deaths_of
from dlrl_core.plan import ClusterView, ExecutionPlan, make_plan, needed_cluster
from dlrl_core.plugin import plugin_host
from dlrl_core.spec import JobSpec, check_name

if TYPE_CHECKING:
    from dlrl_core.master.launch import MasterLaunch

_MASTER_STILL_S = 120.0
"""A submit fails if its Master does not come up and nothing of it moves for this long."""
_MOST_MASTER_S = 900.0
_LOOK_S = 1.0
WAIT_FOR_RESOURCES_S = 60.0
"""How long a job waits for resources that others hold, unless it is told otherwise."""


class RLJob:
    """A job as RLJobBuilder built it; `submit` runs it."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._handle: JobHandle | None = None

    def plan(self, cluster: ClusterView | None = None) -> ExecutionPlan:
        """Each workload's node, device and share, on this cluster or on the smallest one that fits. Starts nothing.

        Print the plan, or draw it with `.to_svg()` or `.to_html()`.
        """
        plan = make_plan(self.spec, cluster or needed_cluster(self.spec))
        sizes = {role.role: role.state_size for role in self.spec.roles if role.state_size is not None}
        return plan.model_copy(update={"deaths": deaths_of(self.spec), "state_sizes": sizes})

    @overload
    def submit(
        self, name: str, blocking: Literal[True] = True, *, address: str | None = None,
        on_status: Callable[[JobStatus], None] | None = None, wait_for_resources_s: float = WAIT_FOR_RESOURCES_S,
    ) -> JobResult: ...  # fmt: skip
    @overload
    def submit(
        self, name: str, blocking: Literal[False], *, address: str | None = None,
        on_status: Callable[[JobStatus], None] | None = None, wait_for_resources_s: float = WAIT_FOR_RESOURCES_S,
    ) -> JobHandle: ...  # fmt: skip
    def submit(
        self,
        name: str,
        blocking: bool = True,
        *,
        address: str | None = None,
        on_status: Callable[[JobStatus], None] | None = None,
        wait_for_resources_s: float = WAIT_FOR_RESOURCES_S,
    ) -> JobResult | JobHandle:
        """Run the job. Blocking: returns its result or raises the first cause. Else: returns a handle at once.

        A job that fits the cluster, but not what other jobs leave free, waits for it up to `wait_for_resources_s`.
        Ctrl-C on a blocking submit stops the job cleanly; a second one leaves it as it is.
        """
        problems = check_name(name)
        if problems:
            raise SpecError(problems)
        connection = connect(address, self.spec)
        try:
            self._handle = self._start(name, connection, wait_for_resources_s)
        except BaseException:
            connection.close()
            raise
        return _wait_or_stop(self._handle, on_status) if blocking else self._handle

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait for the last submission; see JobHandle.wait."""
        return self._submitted("wait for").wait(timeout)

    def status(self) -> JobStatus:
        """Status of the last submission."""
        return self._submitted("ask").status()

    def stop(self, reason: str = "stopped by the user") -> None:
        """Stop the last submission, and wait until all its processes have ended."""
        self._submitted("stop").stop(reason)

    def __repr__(self) -> str:
        """What it is, or the state and step of the last submission as they were last seen."""
        if self._handle is not None:
            return f"<RLJob '{self._handle.name}': {self._handle.summary}>"
        roles = ", ".join(f"{role.total} {role.role}" for role in self.spec.roles)
        return f"<RLJob of trainer '{self.spec.trainer}' with {roles}: not submitted>"

    def _repr_html_(self) -> str:
        """The plan, as a notebook shows it; the reason where there is none."""
        try:
            plan = self.plan()._repr_html_()
        except PlanError as error:
            plan = f"<pre>{html.escape(str(error))}</pre>"
        return f"<p><code>{html.escape(repr(self))}</code></p>{plan}"

    def _submitted(self, action: str) -> JobHandle:
        if self._handle is None:
            raise JobError("", f"there is no job to {action}; call submit first")
        return self._handle

    def _start(self, name: str, connection: Connection, wait_for_resources_s: float) -> JobHandle:
        from dlrl_core.context import default_store_url
        from dlrl_core.master.launch import MasterLaunch, MasterLimits
        from dlrl_core.scheduler import reservation
        from dlrl_core.workload.state_keeper import keeper_class

        _refuse_if_alive(name)
        run_id = uuid.uuid4().hex
        keeper, durable = plugin_host().state_keeper(self.spec.commits.keeper), _durable_folder(self.spec, name, run_id)
        keeper_class(keeper).check_durable(durable)
        plan = _plan_now(self.spec, wait_for_resources_s)
        launch = MasterLaunch(
            job=name,
            run_id=run_id,
            spec_json=self.spec.to_json(),
            plan_json=None if plan is None else plan.to_json(),
            store_url=default_store_url(),
            python_path=_python_path(),
            plugins=os.environ.get("DLRL_PLUGINS"),
            reservation=None if plan is None else reservation.ask_for(name, run_id, 1, plan, is_first=True),
            state_keeper=keeper,
            durable_folder=durable,
            limits=MasterLimits(reserve_s=wait_for_resources_s),
        )
        try:
            return JobHandle(name, self._start_master(launch, plan), connection)
        except BaseException:
            reservation.release_all(name, run_id)
            raise

    def _start_master(self, launch: MasterLaunch, plan: ExecutionPlan | None) -> Any:
        """The handle of a Master that has taken up the job; the job's other processes start while it comes up."""
        from dlrl_core.master.master import start_master

        try:
            master = start_master(launch)
        except ValueError as error:  # Ray's word for "that name is taken"
            raise JobExistsError(launch.job, _exists(launch.job)) from error
        from dlrl_core.master.process_launches import end_all, start_processes  # while the Master starts

        try:
            if plan is not None:
                start_processes(launch, self.spec, plan, launch.reservation.groups[0])
            _await_opened(launch.job, master)
        except BaseException:
            _call_off(master)
            end_all(launch)
            raise
        return master


def _call_off(master: Any) -> None:
    """End a Master whose submit failed: by its own stop, so that the record has the reason, else by force."""
    import ray

    try:
        ray.get(master.stop.remote("the submit was called off"), timeout=5)
        ray.get(master.ended.remote(20.0), timeout=25)
    except ray.exceptions.RayError:
        pass  # it refused the job, or never came up
    finally:
        ray.kill(master, no_restart=True)


def _durable_folder(spec: JobSpec, name: str, run_id: str) -> str:
    """Where the commits of this run are copied to: a folder, or a URL such as s3://bucket/folder."""
    home = Path(os.environ.get("DLRL_HOME") or "~/.dlrl").expanduser().absolute()
    return posixpath.join(spec.commits.state_folder or str(home / "state"), name, run_id)


def _plan_now(spec: JobSpec, wait_s: float) -> ExecutionPlan | None:
    """The plan on what is free now; None if the job fits the cluster and has to wait for resources of other jobs."""
    from dlrl_core.scheduler.cluster_probe import view_capacity, view_cluster

    try:
        return make_plan(spec, view_cluster())
    except PlanError:
        if wait_s > 0:
            make_plan(spec, view_capacity())  # raises if it would not fit an empty cluster either
            return None
        raise


def _refuse_if_alive(name: str) -> None:
    """Raise JobExistsError if a job of this name runs; end the Master of one that has ended."""
    import ray

    from dlrl_core.roles import MASTER
    from dlrl_core.scheduler.workload_launcher import find_actor

    master = find_actor(name, MASTER)
    if master is None:
        return
    try:
        if ray.get(master.ended.remote(0.0), timeout=10) is None:
            raise JobExistsError(name, _exists(name))
        ray.get(master.leave.remote(), timeout=10)
    except ray.exceptions.RayError:
        return  # it ended while it was asked


def _await_opened(name: str, master: Any) -> None:
    """Returns when the Master has taken up the job; else raises its reason.

    A Master that is starting is waited for as long as its state, or the logs of processes on this node, change.
    """
    import ray

    from dlrl_core.scheduler.cluster_probe import Patience, session_logs, sizes_of, state_of
    from dlrl_core.workload.actors import one_line

    def look() -> tuple[object, ...]:
        logs = session_logs()
        return state_of(master), None if logs is None else sizes_of(logs, "*worker*")

    opened, patience = master.opened.remote(), Patience(look, still_s=_MASTER_STILL_S, most_s=_MOST_MASTER_S)
    try:
        while not ray.wait([opened], timeout=_LOOK_S)[0]:
            if patience.is_lost():
                raise ClusterError(
                    f"the master of job '{name}' did not come up: Ray has its actor as {state_of(master)}; "
                    f"it was waited for {patience}; logs are in {session_logs()}"
                )
        ray.get(opened)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
    except ray.exceptions.RayError as error:
        raise ClusterError(f"the master of job '{name}' did not come up: {one_line(error)}") from error


def _exists(name: str) -> str:
    return f"job '{name}' is already running on this cluster; choose another name, or run: dlrl stop {name}"


def _wait_or_stop(handle: JobHandle, on_status: Callable[[JobStatus], None] | None) -> JobResult:
    try:
        return handle.wait(on_status=on_status)
    except KeyboardInterrupt:
        try:
            _say(f"stopping job '{handle.name}'; Ctrl-C again leaves it as it is")
            handle.stop("interrupted (Ctrl-C)")
        except KeyboardInterrupt:
            _say(f"job '{handle.name}' is left as it is; {handle.what_becomes_of_it()}")
        raise


def _say(text: str) -> None:
    print(f"dlrl: {text}", file=sys.stderr, flush=True)


def _python_path() -> tuple[str, ...]:
    """Where this process finds the user's modules, for processes that start elsewhere."""
    of_python = {Path(place) for place in sysconfig.get_paths().values()}
    paths = [Path(path).resolve() if path else Path.cwd() for path in sys.path]
    own = [path for path in paths if path.is_dir() and not of_python.intersection([path, path.parent])]
    return tuple(dict.fromkeys(str(path) for path in own))
