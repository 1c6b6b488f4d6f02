"""JobHandle and JobStatus: a submitted job from a driver's side."""

from __future__ import annotations

import contextlib
import html
import json
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrl_core.api.connection import Connection
from dlrl_core.errors import (
    ClusterError,
    DlrlError,
    JobError,
    JobFailedError,
    JobNotFoundError,
    JobStoppedError,
    JobTimeoutError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from dlrl_core.context import JobContext, JobView


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The redacted view of a job's record, with properties for what is asked most."""

    view: JobView

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def state(self) -> str:
        """submitted, reserving, starting, running, stopping, finished, failed or stopped."""
        return self.view["state"]

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def why(self) -> str | None:
        """How it ended, in one sentence, where that was not a plain finish."""
        return self.view["why"]

    @property
    def waiting_for(self) -> str | None:
        """Which resources it waits for; None if it waits for none."""
        return self.view["waiting_for"]

    @property
    def degraded(self) -> str | None:
        """What keeps the job from being safe, such as a store that does not answer; None if nothing does."""
        return self.view["degraded"]

    @property
    def phase(self) -> str | None:
        """Where the trainer is: construct, init, fit or done."""
        phase: str | None = self.view["trainer"].get("phase")
        return phase

    @property
    def step(self) -> int | None:
        step: int | None = self.view["progress"].get("step")
        return step

    @property
    def total_steps(self) -> int | None:
        total: int | None = self.view["progress"].get("total_steps")
        return total

    @property
    def metrics(self) -> dict[str, float]:
        return dict(self.view["progress"].get("metrics") or {})

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of the last whole step, by 'role.method'."""
        return dict(self.view["progress"].get("phase_seconds") or {})

    @property
    def workloads(self) -> list[dict[str, Any]]:
        return list(self.view["workloads"])

    @property
    def seconds(self) -> float:
        """From submission to the end, or to now."""
        return (self.view["ended_at"] or time.time()) - self.view["submitted_at"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, secrets redacted."""
        return dict(self.view)

    @property
    def summary(self) -> str:
        """State and step in a few words, such as 'running, step 3 of 60'."""
        if self.step is None:
            return self.state
        return f"{self.state}, step {self.step}{f' of {self.total_steps}' if self.total_steps else ''}"

    def __repr__(self) -> str:
        return f"<JobStatus '{self.name}': {self.summary}>"

    def _repr_html_(self) -> str:
        """A small table for a notebook."""
        metrics = ", ".join(f"{name}={_number(value)}" for name, value in self.metrics.items())
        rows = {
            "job": self.name,
            "state": self.summary,
            "time": f"{self.seconds:.1f} s",
            "metrics": metrics,
            "waits for": self.waiting_for,
            "degraded": self.degraded,
            "why": self.why,
        }
        shown = (f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items() if text)
        return f"<table>{''.join(shown)}</table>"


def _number(value: object) -> str:
    """A metric for people; one that is no JSON number, such as NaN, is a text already."""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


_ASK_S = 5.0
_STATUS_PERIOD_S = 0.3
_MASTER_BACK_S = 60.0
_GONE_S = 15.0
_STOP_S = 60.0


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """A finished job. `value` is what the trainer's `fit` returned."""

    name: str
    value: Any
    seconds: float
    status: JobStatus = field(repr=False)


class JobHandle:
    """A running job: wait for it, ask it, stop it. Made by RLJob.submit, or by `attach` from another process."""

    def __init__(self, name: str, master: Any, connection: Connection, *, is_submitter: bool = True) -> None:
        self.name = name
        self._master = master
        self._connection = connection
        self._is_submitter = is_submitter
        self._last: JobStatus | None = None
        self._ending: Any = None
        self._logs = connection.logs
        # Asked once and kept: the answer arrives in this process when the job ends.
        self._ended_ref: Any = master.ended.remote(None)

    @classmethod
    def attach(cls, name: str, connection: Connection) -> JobHandle:
        """The handle of a job that runs on the cluster this process has joined."""
        from dlrl_core.roles import MASTER
        from dlrl_core.scheduler.workload_launcher import find_actor

        master = find_actor(name, MASTER)
        if master is None:
            raise JobNotFoundError(name, f"no job '{name}' runs on this cluster")
        return cls(name, master, connection, is_submitter=False)

    def wait(self, timeout: float | None = None, on_status: Callable[[JobStatus], None] | None = None) -> JobResult:
        """Wait for the end. Returns the result, or raises the first cause; `on_status` is called on the way."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._ending is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise JobTimeoutError(self.name, f"job '{self.name}' has not ended within {timeout:g} s; it goes on")
            try:
                self._ask_ending(_STATUS_PERIOD_S if on_status else _ASK_S, deadline)
                if on_status is not None and self._ending is None:
                    on_status(self.status())
            except ClusterError:
                if not self._has_ended_by_record():
                    raise
            except StoreUnavailableError:
                continue  # a restarted Master waits for its store; the job goes on
        return self._result()

    def status(self) -> JobStatus:
        """What the Master knows now; after the end, what it knew last."""
        if self._ending is None:
            try:
                self._last = JobStatus(view=self._ask(self._master.status))
            except StoreUnavailableError as error:  # a restarted Master that can't read the record yet
                if self._last is None:
                    raise
                self._last = JobStatus(view={**self._last.view, "degraded": str(error)})
            except ClusterError:  # the Master was let go by another process that saw the end first
                if not self._has_ended_by_record():
                    raise
        assert self._last is not None
        return self._last

    def stop(self, reason: str = "stopped by the user") -> None:
        """End the job and wait until nothing of it is left. A job that has ended stays as it is."""
        if self._ending is not None:
            return
        with contextlib.suppress(StoreUnavailableError):
            self.status()
        self._ask(self._master.stop, reason)
        deadline = time.monotonic() + _STOP_S
        while self._ending is None:
            if time.monotonic() >= deadline:
                raise JobTimeoutError(self.name, f"job '{self.name}' did not stop within {_STOP_S:g} s")
            self._ask_ending(_ASK_S, deadline)

    def what_becomes_of_it(self) -> str:
        """What happens to the job when this process leaves it, for a message."""
        if self._connection.is_embedded:
            return "its local Ray ends with this process"
        return f"stop it with: dlrl stop {self.name}"

    def detach(self) -> None:
        """Leave the job running: this process no longer needs it, or the cluster."""
        self._connection.close()

    def _ask_ending(self, period_s: float, deadline: float | None) -> None:
        import ray
        from ray.exceptions import ActorDiedError, RayActorError

        from dlrl_core.workload.actors import one_line

        left = period_s if deadline is None else max(0.0, min(period_s, deadline - time.monotonic()))
        ready, _ = ray.wait([self._ended_ref], timeout=left)
        if not ready:
            return
        try:
            ending = ray.get(self._ended_ref)
        except RayActorError as error:
            if isinstance(error, ActorDiedError):
                raise ClusterError(f"the master of job '{self.name}' does not answer: {one_line(error)}") from error
            self._ask(self._master.ping)  # it is being restarted
            self._ended_ref = self._master.ended.remote(None)
            return
        self._last = self._final_status(ending)
        self._ending = ending
        self._let_go()

    def _has_ended_by_record(self) -> bool:
        """Whether the store has the end of this job; for a Master that ended before this process heard of the end."""
        from dlrl_core.master.beginning_and_end import written_ending

        record = self._final_record()
        if record is None:
            return False
        self._last, self._ending = JobStatus(view=record.snapshot()), written_ending(record.record)
        self._connection.close()
        return True

    def _final_record(self) -> JobContext | None:
        """The record of this run in the store, if it has ended."""
        from dlrl_core.context import JobContext, default_store_url, open_store

        try:
            with open_store(default_store_url()) as store:
                context = JobContext.load(store, self.name)
        except DlrlError:
            return None
        is_this_run = self._last is None or self._last.view["run_id"] == context.record.run_id
        return context if is_this_run and context.record.state.is_final else None

    def _final_status(self, ending: Any) -> JobStatus:
        try:
            return JobStatus(view=self._ask(self._master.status))
        except (ClusterError, StoreUnavailableError):  # the Master has ended meanwhile; the ending is known
            record = self._final_record()
            if record is not None:
                return JobStatus(view=record.snapshot())
            if self._last is None:
                raise
            last = self._last.view
            return JobStatus(
                view={**last, "state": ending.state, "why": ending.why, "ended_at": last["ended_at"] or time.time()}
            )

    def _ask(self, method: Any, *args: Any) -> Any:
        """The Master's answer; one that is being restarted is asked again until it is back."""
        from dlrl_core.workload.actors import NoAnswerError, ask_restarting

        try:
            return ask_restarting(method, *args, answer_s=_MASTER_BACK_S, back_s=_MASTER_BACK_S)
        except NoAnswerError as error:
            silence = (
                f"lives but has not answered for {_MASTER_BACK_S:g} s"
                if error.is_alive
                else f"does not answer: {error}"
            )
            raise ClusterError(f"the master of job '{self.name}' {silence}") from error

    def _let_go(self) -> None:
        """The ending has arrived: let the Master end, and leave the cluster.

        Only the submitter ends a Master that may have a result or a cause to fetch; else it ends by itself soon.
        """
        from dlrl_core.roles import MASTER
        from dlrl_core.scheduler.workload_launcher import wait_until_gone

        if self._last is not None and self._last.degraded is not None:
            print(f"dlrl: the record lacks the end of the job: {self._last.degraded}", file=sys.stderr, flush=True)
        if self._is_submitter or self._ending.state == "stopped":
            self._master.leave.remote()
            wait_until_gone(self.name, [MASTER], _GONE_S)
        self._connection.close()

    def _result(self) -> JobResult:
        ending, status = self._ending, self._last
        assert status is not None
        if ending.state == "finished":
            return JobResult(name=self.name, value=self._value(), seconds=status.seconds, status=status)
        if ending.state == "stopped":
            raise JobStoppedError(self.name, f"job '{self.name}' was stopped: {ending.why}")
        original = ending.cause.load() if ending.cause is not None else None
        message = f"job '{self.name}' failed: {ending.why}"
        if ending.cause is not None:
            message = f"{message}\n\n{ending.cause.traceback}"
        self._tell_logs()
        raise JobFailedError(self.name, message, ending.cause) from original

    def _value(self) -> Any:
        """What the trainer returned. Only what a living Master sent is unpickled: a record has JSON, or nothing."""
        result = self._ending.result
        returned = f"job '{self.name}' finished, but what its trainer returned"
        if result is None or (result.pickled is None and result.json_text is None):
            kind = f", of type '{result.type_name}'," if result is not None else ""
            why = "the master was gone before this process had it, and the job's record keeps plain JSON up to 1 MB"
            raise JobError(self.name, f"{returned}{kind} is lost: {why}; let `fit` write it to a file, too")
        try:
            return json.loads(result.json_text) if result.pickled is None else pickle.loads(result.pickled)
        except Exception as error:
            what = f"{returned}, of type '{result.type_name}', can't be opened in this process"
            raise JobError(self.name, f"{what}: {type(error).__name__}: {error}") from error

    def _tell_logs(self) -> None:
        """Tell once where the output of all processes is."""
        logs, self._logs = self._logs, None
        if logs is not None and self._is_submitter:
            where = f"in {logs}" if self._connection.is_embedded else f"on each node in {logs}"
            print(f"dlrl: the output of all processes, and Ray's logs, are {where}", file=sys.stderr, flush=True)

    @property
    def summary(self) -> str:
        """State and step as they were last seen."""
        return self._last.summary if self._last is not None else "submitted"

    def __repr__(self) -> str:
        """Name, and state and step as they were last seen: a repr asks nothing."""
        return f"<JobHandle '{self.name}': {self.summary}>"

    def _repr_html_(self) -> str:
        return self._last._repr_html_() if self._last is not None else f"<code>{html.escape(repr(self))}</code>"
