"""The job of the quickstart: which class is which role, what shares a device, and what a death restarts."""

from __future__ import annotations

from dlrl_core import RLJob, RLJobBuilder

CONFIG = {
    "target": "ray",
    "alphabet": "abcdefghijklmnopqrstuvwxyz",
    "steps": 60,
    "batch": 128,
    "lr": 8.0,
    "kl": 0.01,
    "seed": 7,
}


def build() -> RLJob:
    """The same job as quickstart.yaml, told to the builder."""
    return (
        RLJobBuilder()
        .node_num(1)
        .device_per_node(3)
        .config(CONFIG)
        .trainer("dlrl_quickstart.trainer", "TokenTrainer")
        .actor("dlrl_quickstart.roles", "TokenActor").total(2).failover("role")
        .rollout("dlrl_quickstart.roles", "TokenRollout").total(2).failover("workload")
        .reference("dlrl_quickstart.roles", "TokenReference").resource({"GPU": 0}).failover("workload")
        .reward("dlrl_quickstart.roles", "TokenReward").resource({"GPU": 0}).failover("workload")
        .critic("dlrl_quickstart.roles", "TokenCritic").failover("role")
        .with_collocation("actor", "rollout")
        .build()
    )  # fmt: skip
