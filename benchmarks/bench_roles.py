"""Roles and trainers of the benchmarks, imported by name in the processes of a job."""

from __future__ import annotations

import time
from typing import Any

import ray

from dlrl_core import BaseTrainer, BaseWorkload

ROUNDS = 80
CALLS = 10


class Idle(BaseWorkload):
    """Does nothing, so that only the call itself is measured."""

    def noop(self) -> None:
        return None

    def take(self, batch: list[int]) -> int:
        return len(batch)


class PlainIdle:
    """The same, as a plain Ray actor."""

    def noop(self) -> None:
        return None

    def take(self, batch: list[int]) -> int:
        return len(batch)


class CallsTrainer(BaseTrainer):
    """Calls its role group and plain Ray actors in turns, from one process."""

    def init(self) -> None:
        plain: Any = ray.remote(PlainIdle)
        self.plain = [plain.options(num_cpus=0).remote() for _ in self.actors]
        ray.get([actor.noop.remote() for actor in self.plain])

    def fit(self) -> dict[str, tuple[list[float], list[float]]]:
        size = len(self.plain)
        batch = list(range(size * 8))

        def by_hand() -> None:
            ray.get([actor.noop.remote() for actor in self.plain])

        def by_hand_sharded() -> None:
            ray.get([actor.take.remote(batch[rank * 8 : (rank + 1) * 8]) for rank, actor in enumerate(self.plain)])

        return {
            f"noop_{size}": _in_turns(self.RG_ACTOR.noop, by_hand),
            f"auto_shard_{size}": _in_turns(lambda: self.RG_ACTOR.take(batch), by_hand_sharded),
        }


def _in_turns(ours: Any, theirs: Any) -> tuple[list[float], list[float]]:
    """Seconds a call of each side, sampled in turns; who goes first alternates."""
    ours_s: list[float] = []
    theirs_s: list[float] = []
    for number in range(-5, ROUNDS):
        sides = [(ours, ours_s), (theirs, theirs_s)]
        for side, samples in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            for _ in range(CALLS):
                side()
            if number >= 0:
                samples.append((time.perf_counter() - began) / CALLS)
    return ours_s, theirs_s


class StartupTrainer(BaseTrainer):
    """Tells when `fit` starts."""

    def init(self) -> None:
        pass

    def fit(self) -> float:
        return time.time()
