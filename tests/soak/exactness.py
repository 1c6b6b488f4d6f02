"""The exactness runs: one job, without faults or under seeded random faults.

Every run must end in the same state to the last bit, with every step applied once, and nothing left on the cluster.
Three seeds run with the tests; `make soak` runs as many as it is told to (tests/soak/run.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import assert_nothing_left, wait_until
from sample_jobs.exact import end_without_faults

from dlrl_chaos.chaos import Chaos, Injected
from dlrl_core import RLJob, RLJobBuilder

ROOT = Path(__file__).parents[2]
HERE = "sample_jobs.exact"
STEPS = 8
LIMIT_S = 120.0
SEED, ACTORS = 7, 2


@dataclass(frozen=True, kw_only=True)
class Run:
    """How one run went."""

    seed: int
    faults: Sequence[Injected]
    value: Any
    seconds: float
    restarts: dict[str, int]
    trainer_restarts: int
    master_restarts: int


def job(*, spare_nodes: int = 0, commits: Mapping[str, Any] | None = None, **config: Any) -> RLJob:
    """Five roles: two with state and collectives, three that answer questions."""
    return (
        RLJobBuilder()
        .node_num(2)
        .device_per_node(4)
        .spare_nodes(spare_nodes)
        .config({"seed": SEED, "steps": STEPS, "pause_s": 0.03, **config})
        .trainer(HERE, "ExactTrainer")
        .actor(HERE, "Buffered").total(ACTORS).failover("role")
        .critic(HERE, "Stateful").failover("role")
        .rollout(HERE, "Pure").total(2).failover("workload")
        .reference(HERE, "Pure").failover("workload")
        .reward(HERE, "Pure").failover("workload")
        .restart_budget(workload=100, role=100, job=100, node=1000, backoff_s=0.0)
        .commits(**(commits or {"every": 1}))
        .allow_chaos()
        .build()
    )  # fmt: skip


def expected(steps: int = STEPS) -> Any:
    """What the job comes to when nothing happens, computed without Ray."""
    return end_without_faults(steps=steps, seed=SEED, actors=ACTORS, critics=1)


def run_without_faults() -> Any:
    return job().submit("exact").value


def run_with_faults(seed: int) -> Run:
    """One run; the seed chooses how many faults, when, and who."""
    chance = random.Random(seed)
    began = time.monotonic()
    handle = job().submit("exact", blocking=False)
    chaos = Chaos("exact")
    if chance.random() < 0.75:  # else right from the start, while everything comes up
        wait_until(lambda: handle.status().state == "running", "the job runs", LIMIT_S)
    injected = chaos.at_random(seed=seed, faults=chance.randint(1, 4), within_s=chance.choice([0.0, 1.0, 3.0]))
    result = handle.wait(timeout=LIMIT_S)
    status = result.status
    assert_nothing_left()
    return Run(
        seed=seed,
        faults=injected,
        value=result.value,
        seconds=time.monotonic() - began,
        restarts={one["name"]: one["restarts"] for one in status.workloads if one["restarts"]},
        trainer_restarts=status.view["trainer"]["incarnation"],
        master_restarts=status.view["master_incarnation"] - 1,
    )


def check(run: Run, expected: Any) -> list[str]:
    """What is wrong with a run; nothing, if it is exact."""
    problems = []
    if run.value != expected:
        problems.append("the final state differs")
    for role in ("actor", "critic"):
        if any(rank["applied"] != list(range(STEPS)) for rank in run.value[role]):
            problems.append(f"{role} did not apply every step once")
    return problems
