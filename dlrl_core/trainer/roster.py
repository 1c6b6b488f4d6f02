"""The roster: which process is behind each workload now, as the trainer knows it.

A process that died is never called again: the roster asks the Master for the one that took its place, makes the calls
of `init` again on it, and says whether the trainer can go on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError

from dlrl_core.errors import DlrlError, TrainerError
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import GONE

_MASTER_BACK_S = 300.0
_ASK_AGAIN_S = 0.1
_PING_S = 10.0
_ANSWER_S = 15.0
"""The Master answers within five seconds, if only to say that it does not know yet."""


def is_gone(actor: Any) -> bool:
    """Whether the process behind this handle is gone; asked when a call has failed."""
    try:
        ray.get(actor.ping.remote(), timeout=_PING_S)
    except GONE:
        return True
    except ray.exceptions.GetTimeoutError:
        return False
    return False


class RestartFit(BaseException):
    """Part of the job was restarted from the last commit: `fit` is to be entered again."""


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
    _init_calls: dict[str, list[_InitCall]] = field(default_factory=dict)

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
        if self.named(name).ray_actor is not actor:
            return  # somebody has asked already
        self._take(self._roll("restored", name, actor._actor_id.hex()))

    def escalate(self, name: str, method: str) -> None:
        """A call that must not be made again was interrupted: have the Master restart more. Raises RestartFit."""
        self._ask("escalate", name, method)
        self._take(self._roll("settled"))
        raise RestartFit

    def catch_up(self) -> None:
        """Before `fit` is entered again: everybody who is to be restarted is, and has seen the calls of `init`."""
        while True:
            try:
                self._take(self._roll("settled"))
                return
            except RestartFit:
                continue

    def _take(self, roll: Roll) -> None:
        changed = []
        for workload in self.workloads:
            actor_id, actor = roll.actors[workload.name]
            if workload.ray_actor._actor_id.hex() != actor_id:
                workload.ray_actor = actor
                changed.append(workload)
        is_behind, self.epoch = roll.epoch > self.epoch, roll.epoch
        if changed:
            self.version += 1
            for workload in changed:
                self._init_again(workload)
            if self.on_restart is not None:
                self.on_restart(changed)
        if is_behind:
            raise RestartFit

    def _init_again(self, workload: WorkloadHandle) -> None:
        ray.get(
            [
                workload.ray_actor.invoke_init.remote(number, call.method, *call.args, **call.kwargs)
                for number, call in enumerate(self._init_calls.get(workload.name, ()))
            ]
        )

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
