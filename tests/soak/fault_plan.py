"""Which faults a seed strikes with: a pure function from the seed to its setting, and to its faults in order.

A group of faults is one, or two: the second comes at once with the first, or when the recovery from it has begun.
After each group training has to go on.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


class Kind(enum.StrEnum):
    """What is done."""

    KILL = "kill"
    """SIGKILL; a GCS is started again after a while."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT before it is declared dead."""
    FREEZE_UNTIL_DEAD = "freeze until dead"
    """SIGSTOP, and SIGCONT when it was declared dead."""
    STALL = "stall"
    """It takes no writes for a while."""
    FULL = "fill"
    """No byte is free for a while."""
    CLOCK = "step the clock"
    """The wall clock of the process jumps by a day, by a stand-in."""


class Target(enum.StrEnum):
    """What it is done to."""

    WORKLOAD = "workload"
    TRAINER = "trainer"
    MASTER = "Master"
    RAYLET = "raylet"
    NODE = "node"
    """A raylet with everything below it, and its memory."""
    GCS = "GCS"
    GCS_TABLES = "Redis of the GCS"
    STORE = "store"
    STORE_DISK = "disk of the store"
    """With durable state on it."""
    MEMORY = "memory"
    """The file system on which committed state is."""


PROCESSES = (Target.WORKLOAD, Target.TRAINER, Target.MASTER)
OF_A_NODE = (Target.NODE, Target.RAYLET)


class Moment(enum.StrEnum):
    """When it is done."""

    START = "at the start"
    TRAINING = "in training"
    AT_ONCE = "at once with another"
    RECOVERY = "in a recovery"


class Setting(enum.StrEnum):
    """Where the jobs of a seed run."""

    TWO_NODES = "two nodes"
    """One memory for both, and an SQLite store, each on a small disk of its own."""
    OWN_MEMORY = "own memory"
    """Three nodes, of which a job uses two, each with its own memory; there is no durable storage."""
    REDIS = "redis"
    """Two nodes whose GCS keeps its tables on a Redis server; the store is on another one."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One fault. Chance has chosen all of it; which process of its target that is comes out when it strikes."""

    kind: Kind
    target: Target
    moment: Moment
    after_s: float
    """From the moment on."""
    seconds: float
    """How long it is held, where time tells."""
    choice: float
    """Of the possible processes or nodes, in order; from 0 to 1."""

    @property
    def name(self) -> tuple[Kind, Target]:
        return self.kind, self.target

    @property
    def is_recovered_from(self) -> bool:
        """Whether something is started again because of it."""
        return self.kind in (Kind.KILL, Kind.FREEZE_UNTIL_DEAD)


K, T = Kind, Target
_OF_PROCESSES = {
    (K.KILL, T.WORKLOAD): 5, (K.KILL, T.TRAINER): 4, (K.KILL, T.MASTER): 4,
    (K.FREEZE, T.WORKLOAD): 3, (K.FREEZE, T.TRAINER): 3, (K.FREEZE, T.MASTER): 3,
}  # fmt: skip
_CLOCKS = {(K.CLOCK, T.WORKLOAD): 1, (K.CLOCK, T.TRAINER): 1, (K.CLOCK, T.MASTER): 2}
_OF_TWO_NODES = {
    (K.FREEZE_UNTIL_DEAD, T.WORKLOAD): 4, (K.FREEZE, T.RAYLET): 2,
    (K.STALL, T.STORE): 3, (K.FULL, T.STORE_DISK): 3, (K.FULL, T.MEMORY): 3,
}  # fmt: skip
FIRST: dict[Setting, dict[tuple[Kind, Target], int]] = {
    Setting.TWO_NODES: {**_OF_PROCESSES, **_CLOCKS, **_OF_TWO_NODES},
    Setting.OWN_MEMORY: {(K.KILL, T.NODE): 3, (K.FREEZE_UNTIL_DEAD, T.RAYLET): 4, (K.FREEZE, T.RAYLET): 1},
    Setting.REDIS: {(K.KILL, T.GCS): 4, (K.FREEZE, T.GCS): 2, (K.STALL, T.GCS_TABLES): 2, (K.STALL, T.STORE): 2},
}
"""Kinds and targets of the first fault of a group, with their weights."""
SECOND: dict[Setting, dict[tuple[Kind, Target], int]] = {
    Setting.TWO_NODES: FIRST[Setting.TWO_NODES],
    Setting.OWN_MEMORY: _OF_PROCESSES,
    Setting.REDIS: {**_OF_PROCESSES, (K.STALL, T.STORE): 2},
}
_WITHIN_S = {Moment.START: 3.0, Moment.TRAINING: 0.3, Moment.AT_ONCE: 0.1, Moment.RECOVERY: 1.0}
_AT_THE_START = (K.KILL, K.FREEZE)
"""What comes before the first commit too: of processes alone, as a cluster that never worked ends a job."""


def setting_of(seed: int) -> Setting:
    """Three of five seeds run on two nodes."""
    return (*(Setting.TWO_NODES,) * 3, Setting.OWN_MEMORY, Setting.REDIS)[seed % 5]


def is_small(seed: int) -> bool:
    """Whether the job of this seed has two roles; else all five."""
    return setting_of(seed) is not Setting.TWO_NODES or seed % 2 == 1


def plan_of(seed: int) -> list[list[Planned]]:
    """The groups of faults of this seed."""
    chance, setting = random.Random(seed), setting_of(seed)
    groups = []
    for _ in range(1 if setting is Setting.OWN_MEMORY else chance.choice((1, 1, 2))):
        first = _planned(chance, FIRST[setting], Moment.TRAINING)
        if not groups and first.kind in _AT_THE_START and first.target in PROCESSES and chance.random() < 0.4:
            first = _planned(chance, {first.name: 1}, Moment.START)
        groups.append([first])
        if chance.random() < 0.6:
            groups[-1].append(_second(chance, SECOND[setting], first))
    return groups


def _second(chance: random.Random, weights: dict[tuple[Kind, Target], int], first: Planned) -> Planned:
    """One that can come with the first: not of the same kind of thing, unless of processes."""
    is_later = first.is_recovered_from and first.moment is not Moment.START and chance.random() < 0.6
    stores = {T.STORE, T.STORE_DISK}
    other = {
        name: weight
        for name, weight in weights.items()
        if name[1] in PROCESSES or (name[1] is not first.target and not {name[1], first.target} <= stores)
    }
    if first.moment is Moment.START:
        other = {name: weight for name, weight in other.items() if name[0] in _AT_THE_START and name[1] in PROCESSES}
    return _planned(chance, other, Moment.RECOVERY if is_later else Moment.AT_ONCE)


def _planned(chance: random.Random, weights: dict[tuple[Kind, Target], int], moment: Moment) -> Planned:
    kind, target = chance.choices(list(weights), weights=list(weights.values()))[0]
    return Planned(
        kind=kind,
        target=target,
        moment=moment,
        after_s=chance.random() * _WITHIN_S[moment],
        seconds=_seconds(chance, kind, target),
        choice=chance.random(),
    )


def _seconds(chance: random.Random, kind: Kind, target: Target) -> float:
    """A node is given up after seconds; a trainer's lease is over after 20."""
    if kind is K.FREEZE and target in (T.TRAINER, T.MASTER) and chance.random() < 0.08:
        return chance.uniform(21.0, 24.0)
    return chance.uniform(0.2, {T.RAYLET: 1.5, T.MEMORY: 5.0}.get(target, 2.5))


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A fault that struck."""

    kind: Kind
    target: Target
    moment: Moment
    name: str
    """Of the process or node."""

    def to_text(self) -> str:
        return "/".join((self.kind, self.target, self.moment, self.name))

    @classmethod
    def of_text(cls, text: str) -> Struck:
        kind, target, moment, name = text.split("/")
        return cls(kind=Kind(kind), target=Target(target), moment=Moment(moment), name=name)


def chosen(choice: float, items: Sequence[Item]) -> Item:
    """The item at that place, from 0 to 1."""
    return items[min(int(choice * len(items)), len(items) - 1)]
