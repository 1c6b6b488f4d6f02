"""A job with all five roles on an embedded local Ray: python examples/quickstart/quickstart.py"""

from __future__ import annotations

from dlrl_core import RLJob, RLJobBuilder


def build() -> RLJob:
    """The same job as quickstart.yaml, told to the builder."""
    return (
        RLJobBuilder()
        .node_num(1)
        .device_per_node(3)
        .config(
            {
                "target": "ray",
                "alphabet": "abcdefghijklmnopqrstuvwxyz",
                "steps": 60,
                "batch": 128,
                "lr": 8.0,
                "kl": 0.01,
                "seed": 7,
            }
        )
        .trainer("token_trainer", "TokenTrainer")
        .actor("token_roles", "TokenActor").total(2)
        .rollout("token_roles", "TokenRollout").total(2)
        .reference("token_roles", "TokenReference").resource({"GPU": 0})
        .reward("token_roles", "TokenReward").resource({"GPU": 0})
        .critic("token_roles", "TokenCritic")
        .with_collocation("actor", "rollout")
        .build()
    )  # fmt: skip


if __name__ == "__main__":
    job = build()
    print(job.plan())
    result = job.submit("quickstart")
    print(f"reward {result.value['first_reward']:.2f} -> {result.value['last_reward']:.2f} in {result.seconds:.1f} s")
