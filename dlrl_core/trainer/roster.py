"""The roster: which process is behind each workload now, as the trainer knows it.

A process that died is never called again: the roster asks the Master for the one that took its place, makes the calls
of `init` again on it, and says whether the trainer can go on where it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from dlrl_core.errors import DlrlError, TrainerError, WorkloadDiedError
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import GONE, LOST

GRACE_S = 1.0
"""When a rank fails because another one died, that death is known a moment later."""
_MASTER_BACK_S = 300.0
_ASK_AGAIN_S = 0.1
_PING_S = 10.0
_ANSWER_S = 15.0
"""The Master answers within five seconds, if only to say that it does not know yet."""


def is_gone(actor: Any) -> bool:
    """Whether the process behind this handle is gone; asked when a call has failed."""
    return _says_gone(actor.ping.remote(), _PING_S)


def _says_gone(ping: Any, timeout_s: float) -> bool:
    try:
        ray.get(ping, timeout=timeout_s)
    except GONE:
        return True
    except ray.exceptions.GetTimeoutError:
        return False
    return False


class RestartFit(BaseException):
    """Part of the job was restarted from the last commit: `fit` is to be entered again."""


def died_with(workload: WorkloadHandle, call: str) -> WorkloadDiedError:
    """The error for a call that failed because a workload died, be it on another one."""
    return WorkloadDiedError(
        f"workload '{workload.name}' died, and '{call}' failed with it",
        role=workload.role,
        rank=workload.rank,
        method=None,
    )


@dataclass(frozen=True, kw_only=True)
class Roll:
    """The workloads as the Master knows them."""

    epoch: int
    """Raised whenever something is restarted that the trainer has to go back for."""
    actors: dict[str, tuple[str, Any]]
    """Of each workload, the id of its actor and the Ray handle."""


@dataclass
class _InitCall:
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class Roster:
    """All workloads of the job. `version` grows with every change, so that callers know when to look again."""

    master: Any
    workloads: Sequence[WorkloadHandle]
    epoch: int = 0
    version: int = 0
    is_init: bool = False
    """The trainer is in `init`: its calls are recorded."""
    on_restart: Callable[[list[WorkloadHandle]], None] | None = None
    is_behind: bool = False
    """The trainer has to go back to its last commit: no call is made before it did."""
    stateful: frozenset[str] = frozenset()
    """Names of the workloads that commits keep the state of."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """What a death restarts in each role; 'workload' where nothing is said."""
    has_commit: bool = False
    """There is something to go back to."""
    replaced: list[WorkloadHandle] = field(default_factory=list)
    """Who got a new process, in this order; as many as `version` says."""
    _init_calls: dict[str, list[_InitCall]] = field(default_factory=dict)
    _uninitialised: list[WorkloadHandle] = field(default_factory=list)
    """Those with a new process that has not seen the calls of `init` yet."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """A trainer may call from several threads, and each of them may meet a death."""

    def named(self, name: str) -> WorkloadHandle:
        return next(workload for workload in self.workloads if workload.name == name)

    def init_numbers(self, workloads: Sequence[WorkloadHandle]) -> list[int]:
        """Of each workload, the number that its next call of `init` will have."""
        return [len(self._init_calls.get(workload.name, ())) for workload in workloads]

    def start_init(self, workload: WorkloadHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Start a call of `init`; it will be made again on whoever takes the workload's place."""
        calls = self._init_calls.setdefault(workload.name, [])
        calls.append(_InitCall(method, args, kwargs))
        return workload.ray_actor.invoke_init.remote(len(calls) - 1, method, *args, **kwargs)

    def replace(self, name: str, actor: Any) -> None:
        """The process behind this handle is gone, or seems so: returns when the workload can be called again.

        Raises RestartFit if the trainer has to go back to its last commit.
        """
        with self._lock:
            self.check()
            if self.named(name).ray_actor is not actor:
                return  # somebody has asked already
            self._take(self._roll("restored", name, actor._actor_id.hex()))

    def gone(self) -> list[tuple[WorkloadHandle, Any]]:
        """Who of all workloads has lost its process, and the handle of that. All are asked at once."""
        asked = {workload.ray_actor.ping.remote(): (workload, workload.ray_actor) for workload in self.workloads}
        ray.wait(list(asked), num_returns=len(asked), timeout=_PING_S)
        return [found for ping, found in asked.items() if _says_gone(ping, 0)]

    def heal(self) -> None:
        """Have everybody replaced whose process is gone. Raises RestartFit as `replace` does."""
        for workload, actor in self.gone():
            self.replace(workload.name, actor)

    def go_back(self, why: WorkloadDiedError) -> NoReturn:
        """What was going on can't be trusted any more: raises RestartFit; without a commit, what is given."""
        if not self.has_commit:
            raise why
        self.is_behind = True
        raise RestartFit

    def may_repeat(self, workload: WorkloadHandle) -> bool:
        """Whether a call that this process may have done, or not, can be made again."""
        return workload.name not in self.stateful and self.scopes.get(workload.role, "workload") == "workload"

    def check(self) -> None:
        """Raise RestartFit if the trainer has to go back before it calls anybody."""
        if self.is_behind:
            raise RestartFit

    def escalate(self, name: str, method: str) -> None:
        """A call that must not be made again was interrupted: have the Master restart more. Raises RestartFit."""
        with self._lock:
            self._ask("escalate", name, method)
            self._take(self._roll("settled"))
            self.is_behind = True
            raise RestartFit

    def catch_up(self) -> None:
        """Before `fit` is entered again: everybody who is to be restarted is, and has seen the calls of `init`."""
        while True:
            try:
                with self._lock:
                    self.is_behind = False
                    self._take(self._roll("settled"))
                return
            except RestartFit:
                continue
            except (RayTaskError, WorkloadDiedError, *LOST):
                if not self.gone():
                    raise
                time.sleep(_ASK_AGAIN_S)  # one more death, which the Master is about to notice

    def _take(self, roll: Roll) -> None:
        is_behind, self.epoch = roll.epoch != self.epoch, roll.epoch
        for workload in self.workloads:
            actor_id, actor = roll.actors[workload.name]
            if workload.ray_actor._actor_id.hex() != actor_id:
                workload.ray_actor = actor
                self.version += 1
                self.replaced.append(workload)
                is_behind = is_behind or workload.name in self.stateful
                if workload not in self._uninitialised:
                    self._uninitialised.append(workload)
        try:
            self._welcome()
        finally:
            self.is_behind = self.is_behind or is_behind
        self.check()

    def _welcome(self) -> None:
        """Whoever has a new process sees the calls of `init`; then the trainer is told."""
        if not self._uninitialised:
            return
        changed = list(self._uninitialised)
        self._init_again(changed)
        self._uninitialised.clear()
        if self.on_restart is not None:
            self.on_restart(changed)

    def _init_again(self, workloads: Sequence[WorkloadHandle]) -> None:
        """All at once: the processes of a role may have to meet each other to get ready."""
        calls = [
            workload.ray_actor.invoke_init.remote(number, call.method, *call.args, **call.kwargs)
            for workload in workloads
            for number, call in enumerate(self._init_calls.get(workload.name, ()))
        ]
        try:
            ray.get(calls)
        except RayTaskError as error:
            gone = self.gone()
            if not gone:
                raise
            raise died_with(gone[0][0], "init") from error

    def _roll(self, method: str, *args: Any) -> Roll:
        """Ask until the Master knows. A restart takes as long as its processes do; the Master itself is bounded."""
        while True:
            roll = self._ask(method, *args)
            if roll is not None:
                return roll

    def _ask(self, method: str, *args: Any) -> Roll | None:
        """Ask the Master; one that is being restarted, or was on a lost node, is asked again until it is back."""
        deadline = time.monotonic() + _MASTER_BACK_S
        while True:
            try:
                roll: Roll | None = ray.get(getattr(self.master, method).remote(*args), timeout=_ANSWER_S)
                return roll
            except ray.exceptions.GetTimeoutError:
                if time.monotonic() > deadline:
                    raise TrainerError(f"the job's master has not answered for {_MASTER_BACK_S:g} s") from None
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
            except RayActorError as error:
                if isinstance(error, ActorDiedError) or time.monotonic() > deadline:
                    raise TrainerError("the job's master is gone, and with it the way to restart a workload") from error
                time.sleep(_ASK_AGAIN_S)
