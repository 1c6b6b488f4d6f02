"""Chaos: break a job on purpose, to see that it survives. Jobs that do not allow it refuse."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dlrl_chaos.fault import Fault, FaultKind, FaultNote
from dlrl_core.errors import ChaosNotAllowedError, DlrlError, JobNotFoundError
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.scheduler.workload_launcher import find_actor, processes_of

_ANSWER_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Injected:
    """One fault that a process was given."""

    target: str
    kind: FaultKind
    at: float = field(default_factory=time.time)
    when: str = "now"

    def __str__(self) -> str:
        return f"{self.kind} of '{self.target}' {self.when}"


class Chaos:
    """Faults for one job, on the cluster this process is connected to."""

    def __init__(self, job: str) -> None:
        if find_actor(job, MASTER) is None:
            raise JobNotFoundError(job, f"no job '{job}' runs on this cluster")
        self._job = job

    def targets(self) -> list[str]:
        """The processes that a fault can be given to: 'master', 'trainer' and all workloads."""
        return [MASTER, TRAINER, *sorted(name for name in processes_of(self._job) if name != TRAINER)]

    def inject(
        self,
        target: str,
        kind: str | FaultKind = FaultKind.KILL,
        *,
        step: int | None = None,
        method: str | None = None,
        nth: int = 1,
        seconds: float = 5.0,
    ) -> Injected:
        """Give a process a fault: now, when a step begins (counted from 1), or at the n-th call of a method."""
        fault = Fault(kind=FaultKind(kind), method=method, nth=nth, seconds=seconds)
        actor = self._actor(target)
        if step is None:
            self._ask(actor.inject, fault, may_end=fault.method is None)
        else:
            self._ask(self._actor(TRAINER).inject, fault, step, None if target == TRAINER else actor)
        when = f"at step {step}" if step is not None else f"at call {nth} of '{method}'" if method else "now"
        injected = Injected(target=target, kind=fault.kind, when=when)
        self._note(injected)
        return injected

    def at_random(
        self, *, seed: int, faults: int, within_s: float, kinds: Sequence[str | FaultKind] = (FaultKind.KILL,)
    ) -> list[Injected]:
        """So many faults at random moments; the same seed chooses the same moments, processes and kinds.

        Returns the faults that were injected. A fault whose process is gone at its moment is left out.
        """
        chance = random.Random(seed)
        names = self.targets()
        plan = sorted(
            (chance.uniform(0, within_s), chance.choice(names), chance.choice(list(kinds))) for _ in range(faults)
        )
        began, done = time.monotonic(), []
        for due_s, target, kind in plan:
            time.sleep(max(0.0, began + due_s - time.monotonic()))
            try:
                done.append(self.inject(target, kind))
            except ChaosNotAllowedError:
                raise
            except DlrlError:
                continue  # the process is gone just now
        return done

    def _actor(self, target: str) -> Any:
        actor = find_actor(self._job, target)
        if actor is None:
            living = ", ".join(f"'{name}'" for name in self.targets())
            raise DlrlError(f"job '{self._job}' has no process '{target}' now; it has {living}")
        return actor

    def _ask(self, method: Any, *args: Any, may_end: bool = False) -> None:
        """Have a process take a fault. With `may_end`, one that dies before it answers counts as hit."""
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        try:
            ray.get(method.remote(*args), timeout=_ANSWER_S)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except RayActorError as error:
            if not may_end:
                raise DlrlError(f"it does not answer: {type(error).__name__}") from error
        except GetTimeoutError as error:
            raise DlrlError(f"it has not answered for {_ANSWER_S:g} s") from error

    def _note(self, injected: Injected) -> None:
        """Have the Master write it to the journal; a Master that is down at the moment misses it."""
        master = find_actor(self._job, MASTER)
        if master is not None:
            note = FaultNote(message=f"chaos: {injected}", subject=injected.target, kind=injected.kind)
            master.inject.remote(note)
