"""The Ray actor around one workload: it constructs the user's class, runs its methods and answers the Master.

The user's methods run one after the other in the default concurrency group. `control` answers while they run; `watch`
holds the pending calls by which the Master notices a death (those of earlier Masters stay in it, so nothing else may
wait there); `commits` waits for copies of the state, `copies` makes those for neighbours; `coroutines` runs `async def`
methods side by side.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray import cloudpickle

from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.errors import DlrlError, RemoteCause, WorkloadCallError, WorkloadStartError
from dlrl_core.spec import ClassRef, ConfigValue
from dlrl_core.workload.base_workload import BaseWorkload, WorkloadIdentity, set_identity
from dlrl_core.workload.coroutines import CoroutineCall, Coroutines
from dlrl_core.workload.fault import Fault, FaultInjector
from dlrl_core.workload.invocation import ShardPart, Term, add_slots, has_state, load_class, methods_of
from dlrl_core.workload.process import (
    DEVICE_VARIABLES,
    PortClaim,
    ProcessSetup,
    end_children,
    end_predecessor,
    end_with_node,
    own_devices,
    push_reports,
    report_of_process,
    show_devices,
    thread_stacks,
)
from dlrl_core.workload.state_keeper import Commit, CommitOutcome, KeeperRequest, Neighbour, keeper_class, late_keeper

CONCURRENCY_GROUPS = (("control", 2), ("watch", 2), ("commits", 4), ("copies", 4))
"""Name and threads; `coroutines` is added with the role's `concurrency`."""
_CANCEL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class WorkloadLaunch:
    """What a workload's process is started with."""

    identity: WorkloadIdentity
    term: int = 0
    cls: ClassRef
    config: ConfigValue
    setup: ProcessSetup
    device_type: str = "GPU"
    visible_devices: str = "own"
    concurrency: int = 32
    state_keeper: str = ""
    durable_folder: str | None = None
    allow_chaos: bool = False
    report_period_s: float = 5.0


class WorkloadHost:
    """The actor class of all workloads. Created by the scheduler, called by role groups and the Master."""

    def __init__(self, launch: WorkloadLaunch) -> None:
        end_with_node()
        self._launch, self._identity, self._term = launch, launch.identity, Term(launch.term)
        self._class: type | None = None
        self._config: Any = None
        self._load_error: Exception | None = None
        self._workload: BaseWorkload | None = None
        self._is_constructed = threading.Event()
        self._table: bytes | None = None
        self._offered_port: PortClaim | None = None
        self._master: Any = None
        self._state = WorkloadState.STARTING
        self._call: tuple[str, float] | None = None
        self._coroutines = Coroutines()
        self._slots: dict[int, str] = {}
        self._faults = FaultInjector(is_allowed=launch.allow_chaos, owner=f"workload '{launch.identity.name}'")
        self._init_results: list[tuple[str, Any]] = []
        self._committed = late_keeper(
            launch.state_keeper,
            KeeperRequest(
                run_id=launch.identity.run_id,
                workload=launch.identity.name,
                role=str(launch.identity.role),
                durable=launch.durable_folder,
                cluster=ray.get_runtime_context().gcs_address,
            ),
        )
        self._reading: frozenset[str] = frozenset()
        """Methods that leave the workload's state as it is."""
        self._restored: str | None = None
        """The id of the commit that the workload's state equals; None after any call."""
        self._calls_done = 0
        self._ended = threading.Event()

    def __repr__(self) -> str:
        """How Ray names this process where the driver shows its output."""
        return self._identity.name

    # ---- start-up, in this order

    @ray.method(concurrency_group="control")
    def facts(self) -> ProcessReport:
        """The first report of this process: where it runs; rank 0 also offers a port where its role can meet."""
        if self._identity.rank == 0 and self._offered_port is None:
            self._offered_port = PortClaim()
        return self._report()

    def load(self) -> None:
        """Import the user's class and open its config, while other processes still start.

        Does nothing the second time. `construct` raises what failed here. A workload that sees the devices of its whole
        role does not know them yet, and a class may look for devices when it is imported: `construct` imports it.
        """
        if self._launch.visible_devices != "role":
            self._load(own_devices(self._launch.device_type))

    def _load(self, visible: tuple[str, ...]) -> None:
        if self._class is not None or self._load_error is not None:
            return
        try:
            self._launch.setup.set_environment()
            if self._launch.visible_devices != "node" and not self._launch.setup.env.keys() & set(DEVICE_VARIABLES):
                show_devices(self._launch.device_type, visible)
            self._identity = replace(self._identity, device_ids=own_devices(self._launch.device_type))
            set_identity(self._identity)  # after the user's variables, which must not replace RANK and the like
            self._launch.setup.prepare_framework(self._identity.role)
            self._class = load_class(self._launch.cls)
            self._config = self._launch.config.open()
        except Exception as error:  # noqa: BLE001 - user code; the Master gets the first cause
            self._load_error = error

    def construct(
        self, master: Any, address: str, port: int, role_devices: tuple[str, ...], old: tuple[int, int] | None = None
    ) -> tuple[bytes | None, bool]:
        """Construct the user's class. Returns rank 0's method table, pickled, since only the trainer can load it (None
        for other ranks), and whether the workload has state to commit. The `old` process on this node is gone by then.

        A restarted Master calls it again and gets the same answer from the same object.
        """
        if self._workload is not None:
            return self._table, self._is_stateful()
        self._load(role_devices)
        self._master = master
        self._identity = replace(self._identity, torch_master_addr=address, torch_master_port=port)
        set_identity(self._identity)
        try:
            end_predecessor(old)
            if self._load_error is not None:
                raise self._load_error
            assert self._class is not None
            if not issubclass(self._class, BaseWorkload):
                raise TypeError(f"'{self._launch.cls}' does not extend dlrl_core.BaseWorkload")
            workload = self._class(master, self._config)
            methods = methods_of(self._class)
            self._table = cloudpickle.dumps(methods) if self._identity.rank == 0 else None
        except Exception as error:  # noqa: BLE001 - user code; the Master gets the first cause
            self._state = WorkloadState.DEAD
            raise WorkloadStartError(
                f"workload '{self._identity.name}' could not start '{self._launch.cls}': {_short(error)}",
                role=str(self._identity.role),
                rank=self._identity.rank,
                cause=RemoteCause.of(error),
            ) from None
        self._slots = {info.slot: name for name, info in methods.items() if info.slot is not None}
        self._reading = frozenset(name for name, info in methods.items() if not info.options.changes_state)
        self._workload = workload
        self._state = WorkloadState.READY
        self._is_constructed.set()
        threading.Thread(target=self._push_reports, name="dlrl-reports", daemon=True).start()
        return self._table, self._is_stateful()

    def _is_stateful(self) -> bool:
        return has_state(dir(self._workload))

    @ray.method(concurrency_group="control")
    def method_table(self) -> bytes | None:
        """Rank 0's method table, for a restarted Master."""
        return self._table

    # ---- the trainer's calls

    @ray.method(concurrency_group="control")
    def fence(self, term: int) -> None:
        """A new trainer begins: calls of an earlier one are refused, and one that runs is followed by `restore`."""
        self._term.check(term)
        self._term.value = term

    def invoke(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one method of the user's class; what it raises comes back with role, rank, method and traceback."""
        method = self._term.method_of(method)
        self._call = (method, time.monotonic())
        self._restored = None
        try:
            return self._run(method, args, kwargs)
        finally:
            self._call = None
            self._calls_done += 1

    def _run(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], call: CoroutineCall | None = None
    ) -> Any:
        given = [_resolved(arg) for arg in args]  # an error here is that of an upstream call, not of this method
        named = {key: _resolved(arg) for key, arg in kwargs.items()}
        if method not in self._reading:
            self._committed.wait()
        try:
            if self._faults and call is None:
                self._faults.before_call(method)
            result = self._bound(method)(*given, **named)
            # Calls through a WorkloadHandle come here without a CoroutineCall: it does not know the method's kind.
            return self._coroutines.run(result, call) if asyncio.iscoroutine(result) else result
        except Exception as error:  # noqa: BLE001 - user code; the trainer gets it
            raise self._call_error(method, error) from None

    @ray.method(concurrency_group="coroutines")
    def invoke_coroutine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one `async def` method on this process's event loop, beside the others.

        A call by name can arrive before `construct` ends, so it waits for that.
        """
        self._is_constructed.wait()
        method = self._term.method_of(method)
        call = self._coroutines.begin(method)
        self._restored = None
        try:
            return self._run(method, args, kwargs, call)
        finally:
            self._coroutines.end(call)
            self._restored = None  # it may have begun before a commit
            self._calls_done += 1

    def invoke_init(self, number: int, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run a call of the trainer's `init` once: a restarted trainer gets the first result."""
        done, method = self._init_results, self._term.method_of(method)
        if number >= len(done) or done[number][0] != method:
            del done[number:]
            done.append((method, self.invoke(method, *args, **kwargs)))
        return done[number][1]

    # ---- commits

    def begin_commit(self, text: str, keep: list[str], neighbour: Neighbour | None, term: int) -> None:
        """Take the state for this commit. The commits to keep are those that count; others are written over."""
        self._term.check(term)
        commit = Commit.from_json(text)
        hook = "capture_state" if hasattr(self._workload, "capture_state") else "save_state"
        self._run_hook(hook, lambda: self._committed.begin(commit, keep, self._workload, neighbour))
        self._restored = commit.id

    @ray.method(concurrency_group="commits")
    def commit_outcome(self, id_: str) -> CommitOutcome:
        """Wait until this rank holds the commit, or can't."""
        return self._committed.outcome(id_)

    @ray.method(concurrency_group="control")
    def counted(self, id_: str, is_copied: bool, on_all: str | None, term: int) -> None:
        """All ranks hold this commit. If `is_copied`, copy it to durable storage in the background.

        `on_all` is the newest that every rank has on durable storage; it is kept until a newer one is.
        """
        self._term.check(term)
        self._committed.set_counted(id_)
        if is_copied:
            self._committed.start_durable(id_, on_all)

    @ray.method(concurrency_group="commits")
    def keeper(self, method: str, *args: Any) -> Any:
        """Call a method of this process's StateKeeper, for the trainer or for the keeper of another process."""
        return getattr(self._committed, self._term.method_of(method))(*args)

    @ray.method(concurrency_group="copies")
    def pull(self, workload: str, id_: str, keep: list[str], source: Any) -> float:
        """Copy a commit of another workload, whose process is on another node, to the memory of this node."""
        return self._committed.pull(workload, id_, keep, source)

    def state_size(self) -> tuple[int, dict[str, int]]:
        """Bytes of this rank's commit, without what ranks hold alike, and of that by name. Called before training."""
        capture = getattr(self._workload, "capture_state", None)
        if capture is None:
            return 0, {}
        try:
            captured = capture()
        except DlrlError as error:  # it can't ever be committed, such as with an unknown optimizer
            raise self._call_error("capture_state", error) from None
        except Exception:  # noqa: BLE001 - user code whose state may not be there before training; its size is not known
            return 0, {}
        alike = {name: captured.buffers[buffer].size for buffer, name in captured.alike.items()}
        return captured.size - sum(alike.values()), alike

    @ray.method(concurrency_group="commits")
    def damage(self, id_: str) -> str | None:
        """Why the state of this commit can't be loaded, after a look at every byte; None if it can."""
        return None if self._restored == id_ else self._committed.damage(id_)

    def restore(self, id_: str, term: int) -> bool:
        """Load the state of this commit; False if the workload has that state already."""
        self._term.check(term)
        if self._coroutines.cancel_all(_CANCEL_S):  # calls of a run of `fit` that is over
            self._restored = None
        self._committed.wait()
        if self._restored == id_:
            return False
        hook = "restore_state" if hasattr(self._workload, "restore_state") else "load_state"
        self._run_hook(hook, lambda: self._committed.load(id_, self._workload))
        self._restored = id_
        return True

    def _run_hook(self, hook: str, run: Callable[[], None]) -> None:
        self._call = (hook, time.monotonic())
        try:
            if self._faults:
                self._faults.before_call(hook)
            run()
        except Exception as error:  # noqa: BLE001 - user code, or the file system; the trainer gets it
            raise self._call_error(hook, error) from None
        finally:
            self._call = None

    def _bound(self, method: str) -> Any:
        found = getattr(self._workload, method, None)
        if found is None:
            raise AttributeError(f"workload '{self._identity.name}' ('{self._launch.cls}') has no method '{method}'")
        return found

    def _call_error(self, method: str, error: Exception) -> WorkloadCallError:
        return WorkloadCallError(
            f"role '{self._identity.role}' rank {self._identity.rank} raised {_short(error)} in '{method}'",
            role=str(self._identity.role),
            rank=self._identity.rank,
            method=method,
            cause=RemoteCause.of(error),
        )

    # ---- the Master's calls

    @ray.method(concurrency_group="watch")
    def watch(self) -> None:
        """Return when the workload is asked to end. A death is noticed because this call then fails."""
        self._ended.wait()

    @ray.method(concurrency_group="control")
    def inject(self, fault: Fault) -> None:
        """Schedule a fault for this process (chaos)."""
        self._faults.add(fault)

    @ray.method(concurrency_group="control")
    def ping(self) -> ProcessReport:
        return self._report()

    def _report(self) -> ProcessReport:
        return report_of_process(
            name=self._identity.name,
            run_id=self._identity.run_id,
            incarnation=self._identity.incarnation,
            state=self._state,
            device_ids=own_devices(self._launch.device_type),
            offered_port=self._offered_port.port if self._offered_port else None,
            call=self._call or self._coroutines.oldest(),
            calls_done=self._calls_done,
        )

    @ray.method(concurrency_group="control")
    def stacks(self) -> str:
        return thread_stacks()

    @ray.method(concurrency_group="control")
    def end(self, is_job_over: bool = True) -> None:
        """Kill the processes that this one has started; called before this one is killed."""
        self._state = WorkloadState.ENDED
        self._ended.set()
        end_children()
        if is_job_over:
            self._committed.forget_run(self._identity.run_id)

    def _push_reports(self) -> None:
        if self._is_stateful():
            keeper_class(self._launch.state_keeper)  # imported while the trainer is told that this process is ready
        push_reports(self._master, self._report, self._ended, self._launch.report_period_s)


def _short(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _resolved(arg: Any) -> Any:
    """An argument as the user's method gets it: shards of an earlier call's results are fetched."""
    return arg.resolve(ray.get) if isinstance(arg, ShardPart) else arg


add_slots(WorkloadHost)
