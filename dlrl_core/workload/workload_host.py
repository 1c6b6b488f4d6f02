"""The Ray actor around one workload: it constructs the user's class, runs its methods, answers the Master.

The user's methods run one after the other in the default group. `control` answers while they run, `watch`
holds the long calls by which a death is noticed (those of Masters that are gone stay there, so nothing else may
wait in it), `durable` waits for durable storage, and `coroutines` runs `async def` methods side by side.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from dlrl_core.context.workload_report import WorkloadReport, WorkloadState
from dlrl_core.errors import CallInterruptedError, RemoteCause, WorkloadCallError, WorkloadStartError
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, ConfigValue
from dlrl_core.workload.base_workload import BaseWorkload
from dlrl_core.workload.class_loader import load_class
from dlrl_core.workload.coroutines import CoroutineCall, Coroutines
from dlrl_core.workload.devices import VARIABLES, own_devices, show_devices
from dlrl_core.workload.fault import Fault, Suffering
from dlrl_core.workload.identity import WorkloadIdentity, become
from dlrl_core.workload.invocation import SLOTS, methods_of
from dlrl_core.workload.orphan import end_with_node
from dlrl_core.workload.process import HostFacts, PortClaim, ProcessSetup, end_children, host_facts, thread_stacks
from dlrl_core.workload.shards import ShardPart
from dlrl_core.workload.state_folder import Commit, DurableCommits, StateFolder, forget_run

CONCURRENCY_GROUPS = (("control", 2), ("watch", 2), ("durable", 1))
"""And `coroutines`, as many as the role runs side by side."""
_CANCEL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class WorkloadLaunch:
    """Everything a workload's process needs, known before it starts."""

    identity: WorkloadIdentity
    cls: ClassRef
    config: ConfigValue
    setup: ProcessSetup
    device_type: str = "GPU"
    visible_devices: str = "own"
    concurrency: int = 32
    durable_folder: str | None = None
    allow_chaos: bool = False
    report_period_s: float = 5.0


class WorkloadHost:
    """One workload's process as Ray sees it. Created by the scheduler, called by role groups and the Master."""

    def __init__(self, launch: WorkloadLaunch) -> None:
        end_with_node()
        self._launch = launch
        self._identity = launch.identity
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
        self._faults = Suffering(is_allowed=launch.allow_chaos, owner=f"workload '{launch.identity.name}'")
        self._init_results: list[tuple[str, Any]] = []
        self._state_folder = StateFolder(
            run_id=launch.identity.run_id,
            workload=launch.identity.name,
            durable=launch.durable_folder,
            node_id=ray.get_runtime_context().get_node_id(),
        )
        self._version: int | None = None
        """Of the commit that the workload's state equals; None after any call."""
        self._calls_done = 0
        self._calling_thread: int | None = None
        self._ended = threading.Event()

    # ---- start-up, in this order

    @ray.method(concurrency_group="control")
    def facts(self) -> HostFacts:
        if self._identity.rank == 0 and self._offered_port is None:
            self._offered_port = PortClaim()
        return host_facts(
            self._identity.name,
            self._identity.run_id,
            offered_port=self._offered_port.port if self._offered_port else None,
            device_ids=own_devices(self._launch.device_type),
        )

    def load(self) -> None:
        """Import the user's class and open its config while other processes still start; `construct` tells of failures.

        Rank and role are in the environment already; where the role meets is there from the constructor on. Whoever
        starts the process asks for it, so the second time there is nothing to do. Who is to see the devices of its
        whole role does not know them yet, and a class may look for devices when it is imported: `construct` loads it.
        """
        if self._launch.visible_devices != "role":
            self._load(own_devices(self._launch.device_type))

    def _load(self, visible: tuple[str, ...]) -> None:
        if self._class is not None or self._load_error is not None:
            return
        try:
            self._launch.setup.set_environment()
            if self._launch.visible_devices != "node" and not self._launch.setup.env.keys() & set(VARIABLES):
                show_devices(self._launch.device_type, visible)
            self._identity = replace(self._identity, device_ids=own_devices(self._launch.device_type))
            become(self._identity)  # after the user's variables: who we are is not theirs to say
            self._launch.setup.prepare_framework(RoleType(self._identity.role))
            self._class = load_class(self._launch.cls)
            self._config = self._launch.config.open()
        except Exception as error:  # noqa: BLE001 - user code; the Master gets the first cause
            self._load_error = error

    def construct(
        self, master: Any, address: str, port: int, role_devices: tuple[str, ...]
    ) -> tuple[bytes | None, bool]:
        """Construct the user's class. Returns of rank 0 the method table, pickled for the trainer alone; and of all,
        whether they have state to commit.

        A Master that comes after another one asks again, and gets the same table from the same object.
        """
        if self._workload is not None:
            return self._table, self._is_stateful()
        self._load(role_devices)
        self._master = master
        self._identity = self._identity.met_at(address, port)
        become(self._identity)
        try:
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
                role=self._identity.role,
                rank=self._identity.rank,
                cause=RemoteCause.of(error),
            ) from None
        self._slots = {info.slot: name for name, info in methods.items() if info.slot is not None}
        self._workload = workload
        self._state = WorkloadState.READY
        self._is_constructed.set()
        threading.Thread(target=self._push_reports, name="dlrl-reports", daemon=True).start()
        return self._table, self._is_stateful()

    def _is_stateful(self) -> bool:
        return hasattr(self._workload, "save_state") and hasattr(self._workload, "load_state")

    @ray.method(concurrency_group="control")
    def method_table(self) -> bytes | None:
        """Rank 0's method table again, for a Master that did not construct it."""
        return self._table

    # ---- the trainer's calls

    def invoke(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one method of the user's class; what it raises comes back with role, rank, method and traceback."""
        self._call = (method, time.time())
        self._version = None
        self._calling_thread = threading.get_ident()
        try:
            args, kwargs = _resolved(args), _resolved_kwargs(kwargs)  # what fails here is upstream's, not the user's
            return self._run(method, args, kwargs)
        finally:
            self._calling_thread = None
            self._call = None
            self._calls_done += 1

    def _run(self, method: str, args: Any, kwargs: dict[str, Any], call: CoroutineCall | None = None) -> Any:
        try:
            if self._faults and call is None:
                self._faults.before_call(method)
            result = self._bound(method)(*args, **kwargs)
            # Without a call it came through a handle, which does not know the method.
            return self._coroutines.run(result, call) if asyncio.iscoroutine(result) else result
        except Exception as error:  # noqa: BLE001 - all of it is the user's, and goes to the trainer
            raise self._call_error(method, error) from None

    @ray.method(concurrency_group="coroutines")
    def invoke_coroutine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one `async def` method on this process's event loop, beside the others.

        Who finds a workload by its name may be here before the workload is.
        """
        self._is_constructed.wait()
        call = self._coroutines.begin(method)
        self._version = None
        try:
            args, kwargs = _resolved(args), _resolved_kwargs(kwargs)
            return self._run(method, args, kwargs, call)
        finally:
            self._coroutines.end(call)
            self._version = None  # it may have begun before a commit
            self._calls_done += 1

    def invoke_init(self, number: int, method: str, *args: Any, **kwargs: Any) -> Any:
        """A call of the trainer's `init`, done once: a trainer that was restarted gets the same result again."""
        done = self._init_results
        if number >= len(done) or done[number][0] != method:
            del done[number:]
            done.append((method, self.invoke(method, *args, **kwargs)))
        return done[number][1]

    # ---- commits

    def save(self, text: str, is_copied: bool, durable_on_all: int | None = None) -> DurableCommits:
        """Write the state of this commit to memory; in the background also to durable storage, if it is to.

        `durable_on_all` is the newest version that every rank has there: it is kept until there is a newer one.
        """
        commit = Commit.from_json(text)
        self._run_hook("save_state", lambda: self._state_folder.begin(commit.version))
        self._state_folder.keep(commit, durable_on_all=durable_on_all)
        self._version = commit.version
        if is_copied:
            self._state_folder.start_copy(commit.version)
        return self._state_folder.durable()

    @ray.method(concurrency_group="durable")
    def make_durable(self, version: int) -> None:
        """Returns when that version is on durable storage."""
        self._state_folder.copy_to_durable(version)

    @ray.method(concurrency_group="control")
    def held(self) -> list[str]:
        """The commits whose state can be loaded here."""
        return [commit.to_json() for commit in self._state_folder.held().values()]

    def restore(self, version: int) -> bool:
        """Go back to the state of this commit; nothing is to do if it still is that."""
        if self._coroutines.cancel_all(_CANCEL_S):  # of a run of `fit` that is over
            self._version = None
        self._state_folder.forget_after(version)
        if self._version == version:
            return False
        self._run_hook("load_state", lambda: self._state_folder.folder_of(version))
        self._version = version
        return True

    def forget(self) -> None:
        """There is no commit that all ranks hold: none of ours ever happened."""
        self._state_folder.forget_after(0)

    def _run_hook(self, hook: str, folder: Callable[[], Path]) -> None:
        self._call = (hook, time.time())
        try:
            path = folder()
            if self._faults:
                self._faults.before_call(hook)
            self._bound(hook)(str(path))
        except Exception as error:  # noqa: BLE001 - the user's, or the folder's; both go to the trainer
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
            role=self._identity.role,
            rank=self._identity.rank,
            method=method,
            cause=RemoteCause.of(error),
        )

    # ---- the Master's

    @ray.method(concurrency_group="watch")
    def watch(self) -> None:
        """Return when the workload is asked to end. A death is noticed because this call then fails."""
        self._ended.wait()

    @ray.method(concurrency_group="control")
    def inject(self, fault: Fault) -> None:
        """Chaos: suffer this fault."""
        self._faults.add(fault)

    @ray.method(concurrency_group="control")
    def ping(self) -> WorkloadReport:
        return self._report()

    @ray.method(concurrency_group="control")
    def stacks(self) -> str:
        return thread_stacks()

    @ray.method(concurrency_group="control")
    def interrupt(self) -> bool:
        """Raise CallInterruptedError in the running call, at its next Python instruction; False if none runs."""
        thread = self._calling_thread
        if thread is None:
            return False
        raised = ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(CallInterruptedError)
        )
        return bool(raised == 1)

    @ray.method(concurrency_group="control")
    def end(self, is_job_over: bool = True) -> None:
        """Last call before the process is killed: nothing that it started may outlive it."""
        self._state = WorkloadState.ENDED
        self._ended.set()
        end_children()
        if is_job_over:
            forget_run(self._identity.run_id)

    def _report(self) -> WorkloadReport:
        import psutil

        call = self._call or self._coroutines.oldest()
        return WorkloadReport(
            name=self._identity.name,
            role=self._identity.role,
            rank=self._identity.rank,
            incarnation=self._identity.incarnation,
            state=self._state,
            call=call[0] if call else None,
            call_since=call[1] if call else None,
            calls_done=self._calls_done,
            step=None,
            memory_bytes=psutil.Process().memory_info().rss,
            node_id=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
            sent_at=time.time(),
        )

    def _push_reports(self) -> None:
        while not self._ended.wait(self._launch.report_period_s):
            try:
                self._master.report.remote(self._report())
            except Exception:  # noqa: BLE001 - the Master may be restarting: the next report counts
                continue


def _short(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _resolved(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg.resolve(ray.get) if isinstance(arg, ShardPart) else arg for arg in args)


def _resolved_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: arg.resolve(ray.get) if isinstance(arg, ShardPart) else arg for key, arg in kwargs.items()}


def _slot_method(slot: int) -> Any:
    def run(self: WorkloadHost, *args: Any, **kwargs: Any) -> Any:
        return self.invoke(self._slots[slot], *args, **kwargs)

    return run


# A name sent as an argument costs a fifth of an empty call. These methods know theirs from the class they host.
for _slot in range(SLOTS):
    setattr(WorkloadHost, f"slot_{_slot}", _slot_method(_slot))
