"""One job that takes one death after the other, each in another step, and what became of each."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlrl_chaos.chaos import Chaos
from dlrl_conformance.leftovers import ProcessTrail, wait_until_gone
from dlrl_conformance.restarts import (
    Death,
    ExpectedRestarts,
    Processes,
    expected_restarts,
    quoted,
    restart_problems,
    restarts_between,
)
from dlrl_conformance.watched_job import Look, WatchedJob
from dlrl_core.errors import DlrlError


@dataclass(frozen=True, kw_only=True)
class DeathReport:
    """One death, and what it led to."""

    death: Death
    step: int
    """The step in which it came."""
    expected: ExpectedRestarts
    restarted: Mapping[str, int]
    after: Processes
    """Everybody, when the job had recovered."""
    recovered_s: float
    """From the kill to the next commit with everybody up."""
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
    before = job.until(lambda look: look.is_whole, f"{death} could be killed", recover_s)
    trail.note(before.processes)
    began = time.monotonic()
    _kill(job, death)
    after = job.until(lambda look: _is_over(look, before, death), f"it recovered from the death of {death}", recover_s)
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


def _is_over(look: Look, before: Look, death: Death) -> bool:
    is_replaced = look.processes[death.victim] != before.processes[death.victim]
    return is_replaced and look.is_whole and look.committed > before.committed


def _kill(job: WatchedJob, death: Death) -> None:
    try:
        Chaos(job.handle.name).inject(death.victim)
    except DlrlError as error:
        raise AssertionError(
            f"{death} could not be killed: {error}; {job.look()}; does the job need more steps, or slower ones?"
        ) from error
