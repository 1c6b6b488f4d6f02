"""One run of the exactness job under the faults of a seed, and what is wrong with its end."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from checks import assert_nothing_left, wait_until

from dlrl_core.context import JobContext, default_store_url, open_store
from soak import exactness
from soak.fault_plan import Moment, Planned, Struck, Target, is_small, plan_of
from soak.grounds import Ground, NotPossibleError
from soak.strikes import Strike, strike_of
from soak.watched_job import LIMIT_S, WatchedJob

_PAUSE_S = 0.04


@dataclass(frozen=True, kw_only=True)
class Run:
    """How one run went."""

    seed: int
    struck: Sequence[Struck]
    value: Any
    seconds: float
    workload_restarts: int
    trainer_restarts: int
    master_restarts: int
    lost: Sequence[str]
    """What the journal tells of lost commits."""
    committed_steps: int
    open_incidents: int


def run_seed(seed: int, ground: Ground) -> Run:
    """Submit the job, strike it with all groups of the seed's faults, and let it end.

    Raises AssertionError if a fault did not strike, or training did not go on after it; NotPossibleError, before
    anything is begun, if this machine can't have one of the faults.
    """
    groups = plan_of(seed)
    ground.check(groups)
    began, name = time.monotonic(), f"soak-{seed}"
    enough = ground.folder / f"enough-{seed}"
    enough.unlink(missing_ok=True)
    job = ground.job(name, is_small=is_small(seed), steps=exactness.ENDLESS, pause_s=_PAUSE_S, enough=str(enough))
    struck: list[Struck] = []
    with ground.in_peace():
        watched = ground.submit(job, name, random.Random(seed).random())
        if groups[0][0].moment is Moment.START:
            struck += _strike(groups.pop(0), watched, ground)
        wait_until(lambda: watched.mark().committed >= 2, "steps are committed", LIMIT_S)
    for group in groups:
        with ground.alone(group):
            ground.before_group()
            struck += _strike(group, watched, ground)
    with ground.in_peace():  # no fault for another job may keep the last steps from being committed
        watched.until_training_goes_on(watched.mark())
        enough.touch()
        result = watched.handle.wait(timeout=LIMIT_S)
    view = result.status.view
    with open_store(default_store_url()) as store:
        record = JobContext.load(store, name)
        lost = [one.message for one in record.journal() if one.kind == "commit_lost"]
    return Run(
        seed=seed,
        struck=struck,
        value=result.value,
        seconds=time.monotonic() - began,
        workload_restarts=sum(one["restarts"] for one in view["workloads"]),
        trainer_restarts=view["trainer"]["incarnation"],
        master_restarts=view["master_incarnation"] - 1,
        lost=lost,
        committed_steps=record.snapshot()["progress"]["committed_step"] or 0,
        open_incidents=sum(one.ready_at is None for one in record.record.incidents),
    )


def runs_of(seeds: Sequence[int], ground: Ground) -> dict[int, Run | NotPossibleError]:
    """How all runs went, two at a time, or why one can't be here. Nothing is left of them.

    Raises the error of one that did not come to its end.
    """

    def run(seed: int) -> Run | NotPossibleError:
        try:
            return run_seed(seed, ground)
        except NotPossibleError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(seeds, pool.map(run, seeds), strict=True))
    assert_nothing_left()
    return found


def _strike(group: Sequence[Planned], job: WatchedJob, ground: Ground) -> list[Struck]:
    """All faults of one group, taken back in the end; training goes on after them."""
    before = job.mark()
    strikes: list[Strike] = []
    with contextlib.ExitStack() as undo:
        for planned in group:
            if planned.moment is Moment.RECOVERY:
                _until_recovery(strikes[0], job)
            time.sleep(planned.after_s)
            strikes.append(strike_of(planned, job, ground, before))
            undo.callback(strikes[-1].undo)
            strikes[-1].begin()
            strikes[-1].began_at = time.monotonic()
        for strike in sorted(strikes, key=lambda one: (not one.is_timed, one.began_at + one.planned.seconds)):
            if strike.is_timed:
                time.sleep(max(0.0, strike.began_at + strike.planned.seconds - time.monotonic()))
            strike.end()
    job.until_training_goes_on(before)
    return [strike.struck() for strike in strikes]


def _until_recovery(first: Strike, job: WatchedJob) -> None:
    """Until the recovery from this fault has begun."""
    target = first.planned.target
    if target is Target.GCS:
        first.end()
    elif target is not Target.MASTER:  # Ray starts that one again at once
        wait_until(lambda: job.is_recovering_since(first.before), "the fault is noticed", LIMIT_S, pause_s=0.02)


def has_struck_as_planned(run: Run) -> bool:
    """Whether each fault that the seed chooses has struck."""
    planned = [(*one.name, one.moment) for group in plan_of(run.seed) for one in group]
    return [(one.kind, one.target, one.moment) for one in run.struck] == planned


def check(run: Run) -> list[str]:
    """What is wrong with a run; nothing, if it is exact."""
    problems = list(run.lost)
    roles = [role for role in ("actor", "critic") if run.value[role]]
    steps = len(run.value["actor"][0]["applied"])
    if run.value != exactness.expected(steps, is_small=is_small(run.seed)):
        problems.append("the final state differs")
    for role in roles:
        if any(rank["applied"] != list(range(steps)) for rank in run.value[role]):
            problems.append(f"{role} did not apply every step once")
    if run.committed_steps != steps:
        problems.append(f"{steps} steps were done, and {run.committed_steps} are committed")
    if run.open_incidents:
        problems.append(f"{run.open_incidents} incidents were never completed")
    return problems
