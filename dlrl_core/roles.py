"""The five roles of a reinforcement learning job, and how the processes of a job are named in Ray."""

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


MASTER = "master"
TRAINER = "trainer"
_PREFIX = "dlrl/"


def namespace_of(job: str) -> str:
    """The Ray namespace that holds all actors of a job: 'master', 'trainer', 'actor-0', ..."""
    return f"{_PREFIX}{job}"


def reservation_name(job: str, run_id: str, what: str) -> str:
    """The name of a placement group: of a run's plan, or of one of its spare nodes."""
    return f"{_PREFIX}{job}/{run_id}/{what}"


def job_of_namespace(namespace: str) -> str | None:
    """The job behind a Ray namespace; None if the namespace is not ours."""
    return namespace.removeprefix(_PREFIX) if namespace.startswith(_PREFIX) else None


def job_of_reservation(name: str) -> str | None:
    """The job behind a placement group's name; None if it is not ours."""
    parts = name.removeprefix(_PREFIX).split("/")
    return parts[0] if name.startswith(_PREFIX) and len(parts) == 3 else None
