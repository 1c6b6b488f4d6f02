"""Who is killed, what that shall restart, and what it did restart: plain values, compared."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlrl_core.context import JobView
from dlrl_core.failover import declared_scopes, role_of
from dlrl_core.scheduler.names import MASTER, TRAINER
from dlrl_core.spec import JobSpec
from dlrl_core.spec.role_values import FailoverScope

Processes = Mapping[str, tuple[int, int | None]]
"""Of everybody in a job, the incarnation and the pid; of the master, which may be anywhere, the incarnation alone."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """A process that will be killed, and what its role declares."""

    victim: str
    scope: FailoverScope | None = None
    """None: the trainer or the master, for which the adapter declares nothing."""

    def __str__(self) -> str:
        return f"'{self.victim}' (scope '{self.scope}')" if self.scope else f"'{self.victim}'"


@dataclass(frozen=True, kw_only=True)
class ExpectedRestarts:
    """Who must be restarted, and who may be; everybody else must stay."""

    must: frozenset[str]
    may: frozenset[str]

    def __str__(self) -> str:
        more = f", and perhaps more of {quoted(self.may)}" if self.may > self.must else ""
        return f"{quoted(self.must)}{more}"


def choose_deaths(spec: JobSpec, seed: int) -> list[Death]:
    """One process of each role, the trainer and the master; the seed chooses ranks and order.

    A role that declares 'stop' is left out: its death is to end the job. The master comes last: steps go on without
    it, and there must be some left for everybody.
    """
    chance = random.Random(seed)
    scopes = declared_scopes(spec)
    deaths = [
        Death(victim=f"{one.role.value}-{chance.randrange(one.total)}", scope=scopes[one.role])
        for one in spec.roles
        if scopes[one.role] is not FailoverScope.STOP
    ]
    deaths.append(Death(victim=TRAINER))
    chance.shuffle(deaths)
    return [*deaths, Death(victim=MASTER)]


def expected_restarts(death: Death, everybody: Iterable[str]) -> ExpectedRestarts:
    """What a death restarts, once something is committed and the budget is not spent."""
    workloads = frozenset(everybody) - {MASTER, TRAINER}
    same_role = frozenset(name for name in workloads if role_of(name) == role_of(death.victim))
    match death.scope:
        case FailoverScope.ROLE:
            return ExpectedRestarts(must=same_role, may=same_role)
        case FailoverScope.SUBGRAPH:  # how far results went is known when the job runs
            return ExpectedRestarts(must=same_role, may=workloads)
        case FailoverScope.JOB:
            return ExpectedRestarts(must=workloads | {TRAINER}, may=workloads | {TRAINER})
        case FailoverScope.STOP:
            return ExpectedRestarts(must=frozenset(), may=frozenset())
        case _:
            return ExpectedRestarts(must=frozenset({death.victim}), may=frozenset({death.victim}))


def processes_of(view: JobView) -> dict[str, tuple[int, int | None]]:
    """Everybody in the job, as the view knows them."""
    everybody = {one["name"]: (one["incarnation"], one["pid"]) for one in view["workloads"]}
    everybody[TRAINER] = (view["trainer"]["incarnation"], view["trainer"]["pid"])
    return {**everybody, MASTER: (view["master_incarnation"], None)}


def restarts_between(before: Processes, after: Processes) -> dict[str, int]:
    """Who has another process now, and how often it was replaced."""
    changed = [name for name in before if before[name] != after.get(name)]
    return {name: max(1, after[name][0] - before[name][0]) if name in after else 0 for name in changed}


def restart_problems(death: Death, expected: ExpectedRestarts, restarted: Mapping[str, int]) -> list[str]:
    """What is wrong with what a death restarted; nothing, if that is exactly what its scope says."""
    names = frozenset(restarted)
    problems = []
    if not expected.must <= names <= expected.may:
        problems.append(f"the death of {death} restarted {quoted(names)}; expected: {expected}")
    again = [f"'{name}' {times} times" for name, times in sorted(restarted.items()) if times > 1]
    if again:
        problems.append(f"after the death of {death} were restarted more than once: {', '.join(again)}")
    return problems


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "nobody"
