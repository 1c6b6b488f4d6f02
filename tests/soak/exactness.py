"""The exactness job: every number in its state depends on every one before it, so that its end tells of every step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sample_jobs.exact import end_without_faults

from dlrl_core import RLJob, RLJobBuilder

ROOT = Path(__file__).parents[2]
HERE = "sample_jobs.exact"
STEPS = 8
ENDLESS = 100_000
"""A job of so many steps ends when the file `enough` of its config is there."""
SHORT_SILENCE_S = 4.0
SEED, ACTORS = 7, 2


def job(
    *,
    spare_nodes: int = 0,
    commits: Mapping[str, Any] | None = None,
    is_small: bool = False,
    silence_s: float = 30.0,
    **config: Any,
) -> RLJob:
    """Five roles: two with state and collectives, three that answer questions. A small one has one of each kind."""
    builder = (
        RLJobBuilder()
        .node_num(2)
        .device_per_node(4)
        .spare_nodes(spare_nodes)
        .config({"seed": SEED, "steps": STEPS, "pause_s": 0.03, **config})
        .trainer(HERE, "ExactTrainer")
    )
    builder = builder.actor(HERE, "Buffered").total(ACTORS).failover("role").silence_limit(silence_s)
    if is_small:
        builder = builder.per_node(1).rollout(HERE, "Pure").failover("workload").silence_limit(silence_s)
    else:
        builder = builder.critic(HERE, "Stateful").failover("role").silence_limit(silence_s)
        builder = builder.rollout(HERE, "Pure").total(2).failover("workload").silence_limit(silence_s)
        builder = builder.reference(HERE, "Pure").failover("workload").silence_limit(silence_s)
        builder = builder.reward(HERE, "Pure").failover("workload").silence_limit(silence_s)
    budget = {"workload": 100, "role": 100, "job": 100, "node": 1000, "backoff_s": 0.0}
    return builder.restart_budget(**budget).commits(**(commits or {"every": 1})).allow_chaos().build()


def expected(steps: int = STEPS, *, is_small: bool = False) -> Any:
    """What the job comes to when nothing happens, computed without Ray."""
    return end_without_faults(steps=steps, seed=SEED, actors=ACTORS, critics=0 if is_small else 1)
