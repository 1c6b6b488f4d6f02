"""Deaths of processes: which are chosen, what each must restart, and what it did restart in a running job."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlrl_chaos.chaos import Chaos
from dlrl_conformance.watched_job import Look, Processes, ProcessTrail, WatchedJob, quoted, wait_until_gone
from dlrl_core.errors import DlrlError
from dlrl_core.failover import declared_scopes, role_of
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.spec import JobSpec
from dlrl_core.spec.role_values import FailoverScope


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
    """The processes that must be restarted, and those that may be; all others must stay."""

    must: frozenset[str]
    may: frozenset[str]

    def __str__(self) -> str:
        more = f", and perhaps more of {quoted(self.may)}" if self.may > self.must else ""
        return f"{quoted(self.must)}{more}"


def choose_deaths(spec: JobSpec, seed: int) -> list[Death]:
    """One process of each role, the trainer and the master; the seed chooses ranks and order.

    A role that declares 'stop' is left out: its death ends the job. The master comes last: steps go on while it
    restarts, and each death needs a step of its own.
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


def restarts_between(before: Processes, after: Processes) -> dict[str, int]:
    """The names whose process is another one now, and how often each was replaced."""
    changed = [name for name in before if before[name] != after.get(name)]
    return {name: max(1, after[name][0] - before[name][0]) if name in after else 0 for name in changed}


def restart_problems(death: Death, expected: ExpectedRestarts, restarted: Mapping[str, int]) -> list[str]:
    """The differences between what a death restarted and what its scope says."""
    names = frozenset(restarted)
    problems = []
    if not expected.must <= names <= expected.may:
        problems.append(f"the death of {death} restarted {quoted(names)}; expected: {expected}")
    again = [f"'{name}' {times} times" for name, times in sorted(restarted.items()) if times > 1]
    if again:
        problems.append(f"after the death of {death} were restarted more than once: {', '.join(again)}")
    return problems


# ---- in a running job


@dataclass(frozen=True, kw_only=True)
class DeathReport:
    """One death, and what it led to."""

    death: Death
    step: int
    """The step in which the process was killed, counted from 1."""
    expected: ExpectedRestarts
    restarted: Mapping[str, int]
    after: Processes
    """All processes, when the job had recovered."""
    recovered_s: float
    """From the kill to the next commit with all processes up."""
    problems: Sequence[str]

    def __str__(self) -> str:
        ending = "as expected" if not self.problems else "; ".join(self.problems)
        return f"step {self.step}: {self.death}, {self.recovered_s:.1f} s, restarted {quoted(self.restarted)}: {ending}"


def take_deaths(
    job: WatchedJob, deaths: Sequence[Death], trail: ProcessTrail, *, seed: int, recover_s: float, gone_s: float
) -> list[DeathReport]:
    """Kill one after the other with SIGKILL, each at a random moment of a step, and wait for recovery in between."""
    chance = random.Random(seed)
    reports, outliving = [], []
    for death in deaths:
        time.sleep(chance.uniform(0.0, job.step_seconds))
        reports.append(_take(job, death, trail, recover_s))
        outliving.append(trail.outliving(reports[-1].after))
    # Not before: the job goes on meanwhile, and the next death must find it.
    wait_until_gone(lambda: [one for some in outliving for one in some if one.lives], gone_s)
    return [
        replace(report, problems=[*report.problems, *(f"{one} outlived its death" for one in some if one.lives)])
        for report, some in zip(reports, outliving, strict=True)
    ]


def _take(job: WatchedJob, death: Death, trail: ProcessTrail, recover_s: float) -> DeathReport:
    trail.note(job.until(lambda look: look.is_whole, f"{death} could be killed", recover_s).processes)
    before = job.look()  # to note all processes takes a while
    began = time.monotonic()
    _kill(job, death)
    recovery = f"it recovered from the death of {death}"
    whole = job.until(lambda look: _is_replaced(look, before, death), recovery, recover_s)
    # Not just one after `before`: the step in which it was killed may have been committed just then.
    after = job.until(lambda look: _goes_on(look, whole), recovery, recover_s)
    expected = expected_restarts(death, before.processes)
    restarted = restarts_between(before.processes, after.processes)
    return DeathReport(
        death=death,
        step=before.committed + 1,
        expected=expected,
        restarted=restarted,
        after=after.processes,
        recovered_s=time.monotonic() - began,
        problems=restart_problems(death, expected, restarted),
    )


def _is_replaced(look: Look, before: Look, death: Death) -> bool:
    return look.is_whole and look.processes[death.victim] != before.processes[death.victim]


def _goes_on(look: Look, whole: Look) -> bool:
    return look.is_whole and (look.is_final or look.committed > whole.committed)


def _kill(job: WatchedJob, death: Death) -> None:
    try:
        Chaos(job.handle.name).inject(death.victim)
    except DlrlError as error:
        raise AssertionError(
            f"{death} could not be killed: {error}; {job.look()}; does the job need more steps, or slower ones?"
        ) from error
