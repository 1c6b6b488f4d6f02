"""The five roles of a reinforcement learning job."""

from __future__ import annotations

import enum


class RoleType(enum.StrEnum):
    """What a workload is for. The value is the word of the builder, the CLI and the actor's name."""

    ACTOR = "actor"
    ROLLOUT = "rollout"
    REWARD = "reward"
    REFERENCE = "reference"
    CRITIC = "critic"

    @property
    def group_name(self) -> str:
        """The trainer's attribute for all workloads of this role, such as 'RG_ACTOR'."""
        return f"RG_{self.name}"

    def workload_name(self, rank: int) -> str:
        """The name of one workload, unique within its job, such as 'actor-0'."""
        return f"{self.value}-{rank}"
