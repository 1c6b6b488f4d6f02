"""WorkloadDirectory: which process is behind each workload now, as the trainer knows it.

A process that died is never called again. The directory asks the Master for the one that replaced it, repeats the
calls of `init` on it, and decides whether the trainer can go on or has to go back to its last commit.

Two numbers count restarts here. `epoch` is the Master's, and kept in the job's record: it grows when something is
restarted for which the trainer has to go back. `version` is this process's: it grows with each replaced process, so
that a role group knows when to look up its actors again, and a call whether anything was replaced since it was made.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from dlrl_core.errors import DlrlError, TrainerError, WorkloadDiedError
from dlrl_core.trainer.progress import LEASE_S, ProgressReport
from dlrl_core.workload.actors import GONE, LOST, NoAnswerError, ask_restarting
from dlrl_core.workload.process import end_replaced

GRACE_S = 1.0
"""When a rank fails because another one died, Ray reports that death within this time."""
_MASTER_BACK_S = 300.0
_ASK_AGAIN_S = 0.1
_PING_S = 10.0
_ANSWER_S = 15.0
"""Longer than the Master takes to answer that a restart is not finished yet."""
FIT: ContextVar[int | None] = ContextVar("dlrl_fit", default=None)
"""The run of `fit` that a thread or coroutine was started by; None before the first."""


@dataclass
class Lease:
    """Until when this process may call workloads. The Master starts no successor of a trainer whose lease may hold."""

    term: int | None = None
    """The incarnation of the trainer; None for a lease without an end."""
    until: float = math.inf
    """By the monotonic clock."""
    master: Any = None
    report: Callable[[], ProgressReport | None] = lambda: None

    def signed(self, method: str) -> str:
        """The name by which a method is called: with the term."""
        return method if self.term is None else f"{self.term}:{method}"

    def check(self) -> None:
        """If it has run out, ask the Master and wait until it is granted again."""
        pause_s = 0.0
        while time.monotonic() >= self.until:
            time.sleep(pause_s)
            sent_at, pause_s = time.monotonic(), _ASK_AGAIN_S
            self.heard(ask_master(self.master.trainer_progress, self.report()), sent_at)

    def heard(self, is_granted: bool | None, sent_at: float) -> None:
        """Take the answer to a report that was sent then. If it is a refusal, this process ends."""
        if is_granted is None:
            return
        if is_granted:
            self.until = max(self.until, sent_at + LEASE_S) if self.until >= 0 else self.until
            return
        with contextlib.suppress(Exception):  # so that the Master need not wait for the end of the lease
            self.until = -math.inf
            tell = self.master.trainer_left.remote
            ray.get(tell(ray.get_runtime_context().get_actor_id()), timeout=GRACE_S)
        end_replaced("the trainer")


def ask_master(method: Any, *args: Any) -> Any:
    """The Master's answer; a Master that is being restarted, or was on a lost node, is asked until it is back."""
    try:
        return ask_restarting(method, *args, answer_s=_ANSWER_S, back_s=_MASTER_BACK_S)
    except NoAnswerError as error:
        if error.is_alive:
            raise TrainerError(f"the job's master has not answered for {_MASTER_BACK_S:g} s") from None
        raise TrainerError("the job's master is gone, and with it the way to restart a workload") from error


class WorkloadHandle:
    """`handle.method.remote(...)` and `handle.method.options(...).remote(...)`, as on a Ray actor handle.

    Any public method of the user's class can be called. The handle can be passed to other workloads.
    `ray_actor` is the Ray handle of the process itself.
    """

    def __init__(
        self, *, name: str, role: str, rank: int, ray_actor: Any, part: str | None = None, node_id: str = ""
    ) -> None:
        self.name = name
        self.part = part
        self.node_id = node_id
        self.role = role
        self.rank = rank
        self.ray_actor = ray_actor
        self._lease = Lease()  # the trainer's, in its process; others call in no term

    def __getattr__(self, method: str) -> HandleMethod:
        if method.startswith("_"):
            raise AttributeError(f"'{method}' is private; the public methods of '{self.name}' can be called")
        self._lease.check()
        return HandleMethod(self.ray_actor.invoke, self._lease.signed(method))

    def __reduce__(self) -> tuple[Any, ...]:
        known = {name: value for name, value in vars(self).items() if name != "_lease"}  # which is the trainer's
        return functools.partial(WorkloadHandle, **known), ()

    def __repr__(self) -> str:
        return f"WorkloadHandle('{self.name}')"


class HandleMethod:
    """One method of a WorkloadHandle."""

    def __init__(self, invoke: Any, method: str) -> None:
        self._invoke = invoke
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call; returns its Ray object reference."""
        return self._invoke.remote(self._method, *args, **kwargs)

    def options(self, **options: Any) -> HandleMethod:
        """The same method with Ray's options for actor calls, such as `num_returns`."""
        return HandleMethod(self._invoke.options(**options), self._method)


class RestartFit(BaseException):
    """Part of the job was restarted from the last commit: `fit` has to be entered again."""


def died_with(workload: WorkloadHandle, call: str) -> WorkloadDiedError:
    """The error for a call that failed because a workload died, which need not be the one that was called."""
    return WorkloadDiedError(
        f"workload '{workload.name}' died, and '{call}' failed with it",
        role=workload.role,
        rank=workload.rank,
        method=None,
    )


def is_gone(ping: Any, timeout_s: float = _PING_S) -> bool:
    """Whether a call of `ping` fails because the process is gone."""
    try:
        ray.get(ping, timeout=timeout_s)
    except (GetTimeoutError, *GONE) as error:
        return isinstance(error, GONE)
    return False


@dataclass(frozen=True, kw_only=True)
class DirectorySnapshot:
    """The processes of all workloads as the Master knows them."""

    epoch: int
    """Of the last incident for which the trainer has to go back to a commit: it changes with each."""
    actors: dict[str, tuple[str, Any, str]]
    """Of each workload, the id of its actor, the Ray handle, and the id of its node."""


@dataclass
class WorkloadDirectory:
    """All workloads of the job, each with the process that is behind it now."""

    master: Any
    workloads: Sequence[WorkloadHandle]
    epoch: int = 0
    lease: Lease = field(default_factory=Lease)
    is_init: bool = False
    """The trainer is in `init`: its calls are recorded."""
    on_restart: Callable[[list[WorkloadHandle]], None] | None = None
    is_behind: bool = False
    """The trainer has to go back to its last commit, and makes no call before that."""
    stateful: frozenset[str] = frozenset()
    """Names of the workloads whose state is committed."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """What a death restarts in each role; 'workload' for a role that is missing."""
    has_commit: bool = False
    """Whether there is a commit to go back to."""
    replaced: list[WorkloadHandle] = field(default_factory=list)
    """The workloads that got a new process, in this order."""
    _init_calls: dict[str, list[tuple[str, tuple[Any, ...], dict[str, Any]]]] = field(default_factory=dict)
    """Of each workload, the calls of `init`: method, arguments, keyword arguments."""
    _uninitialised: list[WorkloadHandle] = field(default_factory=list)
    """The workloads whose new process has not seen the calls of `init` yet."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """A trainer may call from several threads, and each of them may meet a death."""
    sends: defaultdict[str, threading.RLock] = field(default_factory=lambda: defaultdict(threading.RLock))
    """Of each role, held while a call is sent to its workloads: all of them get calls in the same order."""
    most_unawaited: int = 64
    """With so many, they are looked at."""
    unawaited: dict[Any, None] = field(default_factory=dict)
    """RoleCalls whose outcome the trainer has not seen yet."""
    fits: int = 0
    """How often `fit` was entered."""

    @property
    def version(self) -> int:
        """How many processes were replaced so far."""
        return len(self.replaced)

    @property
    def must_leave(self) -> bool:
        """Whether `fit` has to end, and no thread is replacing processes, for which the main loop may wait."""
        if not self.is_behind or not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def named(self, name: str) -> WorkloadHandle:
        return next(workload for workload in self.workloads if workload.name == name)

    def init_numbers(self, workloads: Sequence[WorkloadHandle]) -> list[int]:
        """Of each workload, the number that its next call of `init` will have."""
        return [len(self._init_calls.get(workload.name, ())) for workload in workloads]

    def start_init(self, workload: WorkloadHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Start a call of `init`, and record it to be repeated on processes that replace this one."""
        calls = self._init_calls.setdefault(workload.name, [])
        calls.append((method, args, kwargs))
        return workload.ray_actor.invoke_init.remote(len(calls) - 1, self.lease.signed(method), *args, **kwargs)

    def fence(self) -> None:
        """Have all workloads refuse the calls of earlier trainers. One whose process is gone begins in this term."""
        for workload in self.workloads:
            workload._lease = self.lease
        asked = [one.ray_actor.fence.remote(self.lease.term) for one in self.workloads] if self.lease.term else []
        if asked:
            ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
        for workload, ref in zip(self.workloads, asked, strict=False):
            try:
                ray.get(ref, timeout=0)
            except (GetTimeoutError, RayTaskError, *GONE):
                with contextlib.suppress(NoAnswerError):
                    ask_restarting(workload.ray_actor.fence, self.lease.term, answer_s=_ANSWER_S, back_s=_MASTER_BACK_S)

    def replace(self, name: str, actor: Any) -> None:
        """Return when a workload can be called again whose process is gone, or seemed to be.

        Raises RestartFit if the trainer has to go back to its last commit.
        """
        with self._lock:
            self.check()
            if self.named(name).ray_actor is not actor:
                return  # another thread has replaced it
            self._apply(self._snapshot("restored", name, actor._actor_id.hex()))

    def gone(self) -> list[tuple[WorkloadHandle, Any]]:
        """The workloads whose process is gone, each with the handle of that process. All are pinged at once."""
        asked = {workload.ray_actor.ping.remote(): (workload, workload.ray_actor) for workload in self.workloads}
        ray.wait(list(asked), num_returns=len(asked), timeout=_PING_S)
        return [found for ping, found in asked.items() if is_gone(ping, 0)]

    def replace_gone(self) -> None:
        """Call `replace` for every workload whose process is gone."""
        for workload, actor in self.gone():
            self.replace(workload.name, actor)

    def ask_all(self, workloads: Sequence[WorkloadHandle], method: str, *args: Any) -> list[Any]:
        """Call a method of WorkloadHost on these workloads. After a death, raises RestartFit."""
        self.lease.check()
        return self.answers([getattr(one.ray_actor, method).remote(*args) for one in workloads], method, workloads)

    def answers(self, refs: list[Any], method: str, asked: Sequence[WorkloadHandle]) -> list[Any]:
        """The answers of these workloads to that method. After a death, raises RestartFit."""
        before = self.version
        try:
            return list(ray.get(refs))
        except (RayTaskError, *LOST) as error:
            if not isinstance(error, LOST):
                ray.wait(refs, num_returns=len(refs), timeout=GRACE_S)
            self.replace_gone()
            replaced = self.replaced[before:]
            if replaced or isinstance(error, LOST):
                self.go_back(died_with((replaced or asked)[0], method))
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, DlrlError) else error) from None

    def go_back(self, why: WorkloadDiedError) -> NoReturn:
        """Raise RestartFit, because the running calls can't be repeated; without a commit, raise `why`."""
        if not self.has_commit:
            raise why
        self.is_behind = True
        raise RestartFit

    def may_repeat(self, workload: WorkloadHandle) -> bool:
        """Whether a call can be repeated that this process may have done already."""
        return workload.name not in self.stateful and self.scopes.get(workload.role, "workload") == "workload"

    def check(self) -> None:
        """Raise RestartFit if the trainer has to go back before its next call, or an earlier run of `fit` makes it.

        If the lease of this process has run out, wait until the Master grants it again.
        """
        if self.is_behind or FIT.get() not in (None, self.fits):
            raise RestartFit
        self.lease.check()

    def enter_fit(self) -> None:
        """The calling thread, and what it starts, belongs to the next run of `fit`; earlier ones can call no more."""
        is_behind, self.is_behind = self.is_behind, True
        for lock in list(self.sends.values()):
            with lock:  # what is being sent comes before all that the next run sends
                continue
        self.fits += 1
        FIT.set(self.fits)
        self.is_behind = is_behind

    def escalate(self, name: str, method: str) -> NoReturn:
        """Have the Master restart more, because a call was interrupted that must not be repeated. Raises RestartFit."""
        with self._lock:
            self.check()
            ask_master(self.master.escalate, name, method, self.lease.term)
            self._apply(self._snapshot("settled"))
            self.is_behind = True
            raise RestartFit

    def catch_up(self) -> None:
        """Wait until all restarts are complete and the new processes have seen `init`; then `fit` can be entered."""
        self.enter_fit()
        self.unawaited.clear()
        while True:
            try:
                with self._lock:
                    self.is_behind = False
                    self._apply(self._snapshot("settled"))
                return
            except RestartFit:
                continue
            except (RayTaskError, WorkloadDiedError, *LOST):
                if not self.gone():
                    raise
                time.sleep(_ASK_AGAIN_S)  # until the Master has noticed this death, too

    def _apply(self, snapshot: DirectorySnapshot) -> None:
        """Take over the processes of a snapshot. Raises RestartFit if the trainer has to go back because of them."""
        is_behind, self.epoch = snapshot.epoch != self.epoch, snapshot.epoch
        for workload in self.workloads:
            actor_id, actor, node_id = snapshot.actors[workload.name]
            if workload.ray_actor._actor_id.hex() != actor_id:
                workload.ray_actor, workload.node_id = actor, node_id
                self.replaced.append(workload)
                is_behind = is_behind or workload.name in self.stateful
                if workload not in self._uninitialised:
                    self._uninitialised.append(workload)
        try:
            self._initialise()
        finally:
            self.is_behind = self.is_behind or is_behind
        self.check()

    def _initialise(self) -> None:
        """Repeat the calls of `init` on new processes, then call the trainer's `on_restart`."""
        if not self._uninitialised:
            return
        changed = list(self._uninitialised)
        self._repeat_init(changed)
        self._uninitialised.clear()
        if self.on_restart is not None:
            self.on_restart(changed)

    def _repeat_init(self, workloads: Sequence[WorkloadHandle]) -> None:
        """All at once: the processes of a role may have to meet each other to get ready."""
        calls = [
            workload.ray_actor.invoke_init.remote(number, self.lease.signed(method), *args, **kwargs)
            for workload in workloads
            for number, (method, args, kwargs) in enumerate(self._init_calls.get(workload.name, ()))
        ]
        try:
            ray.get(calls)
        except RayTaskError as error:
            gone = self.gone()
            if not gone:
                raise
            raise died_with(gone[0][0], "init") from error

    def _snapshot(self, method: str, *args: Any) -> DirectorySnapshot:
        """Ask the Master until it has one. A restart takes as long as its processes do; the Master limits that."""
        while True:
            snapshot: DirectorySnapshot | None = ask_master(getattr(self.master, method), *args)
            if snapshot is not None:
                return snapshot
