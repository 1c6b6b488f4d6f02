"""The exactness runs: one job without faults, then the same job under seeded random faults.

    python tests/soak/exactness.py 200

Every run must end in the same state to the last bit, with every step applied once, and nothing left on the cluster.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from checks import assert_nothing_left, wait_until  # noqa: E402

from dlrl_chaos.chaos import Chaos, Injected  # noqa: E402
from dlrl_core import RLJob, RLJobBuilder  # noqa: E402

HERE = "sample_jobs.exact"
STEPS = 8
LIMIT_S = 120.0


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


def job(*, is_fair_game: bool = True, spare_nodes: int = 0, **config: Any) -> RLJob:
    """Five roles: two with state and collectives, three that answer questions."""
    return (
        RLJobBuilder()
        .node_num(2)
        .device_per_node(4)
        .spare_nodes(spare_nodes)
        .config({"seed": 7, "steps": STEPS, "pause_s": 0.03, **config})
        .trainer(HERE, "ExactTrainer")
        .actor(HERE, "Stateful").total(2).failover("role")
        .critic(HERE, "Stateful").failover("role")
        .rollout(HERE, "Pure").total(2).failover("workload")
        .reference(HERE, "Pure").failover("workload")
        .reward(HERE, "Pure").failover("workload")
        .restart_budget(workload=100, role=100, job=100, node=1000, backoff_s=0.0)
        .allow_chaos(is_fair_game)
        .build()
    )  # fmt: skip


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


def main(runs: int) -> None:
    """All runs on a cluster of their own, one after the other; the table of results goes to the docs."""
    import logging
    import os
    import tempfile

    import ray

    from dlrl_core.plan import ClusterView
    from dlrl_local_ray.local_cluster import LocalCluster

    cluster = LocalCluster()
    done: list[tuple[Run, list[str]]] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLRL_HOME"] = home
        try:
            address = cluster.add_nodes(ClusterView.described(node_num=2, resources={"CPU": 16, "GPU": 4}))
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            expected = run_without_faults()
            for seed in range(runs):
                run = run_with_faults(seed)
                done.append((run, check(run, expected)))
                print(f"{seed + 1}/{runs}: {_row(*done[-1])}", flush=True)
        finally:
            ray.shutdown()
            cluster.stop()
            (ROOT / "docs" / "explanation" / "soak.md").write_text(_page(done, runs))
    sys.exit(0 if len(done) == runs and not any(problems for _, problems in done) else 1)


def _row(run: Run, problems: list[str]) -> str:
    faults = ", ".join(f"{one.kind} {one.target}" for one in run.faults) or "none in time"
    restarts = sum(run.restarts.values())
    ending = "exact" if not problems else "; ".join(problems)
    return (
        f"| {run.seed} | {faults} | {restarts} | {run.trainer_restarts} | {run.master_restarts} | "
        f"{run.seconds:.0f} | {ending} |"
    )


def _page(done: Sequence[tuple[Run, list[str]]], runs: int) -> str:
    exact = sum(not problems for _, problems in done)
    faults = sum(len(run.faults) for run, _ in done)
    rows = "\n".join(_row(run, problems) for run, problems in done)
    return (
        "# The exactness runs\n\n"
        "Written by `make soak`: the job of `tests/soak/exactness.py`, five roles with real state, run under random faults\n"
        "chosen by a seed. A run is exact if its end is the same to the last bit as that of the run without faults, every\n"
        "step was applied once, and nothing was left on the cluster.\n\n"
        f"{exact} of {len(done)} runs exact ({runs} asked for), {faults} faults.\n\n"
        "| seed | faults | workload restarts | trainer restarts | master restarts | seconds | ending |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        f"{rows}\n"
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
