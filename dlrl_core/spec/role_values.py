"""Values that a role is described by and that its processes need too: importing them brings in no pydantic."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClassRef:
    """A class by module and name, imported only where it runs."""

    module: str
    class_name: str
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - read by pydantic where it validates one

    def __str__(self) -> str:
        return f"{self.module}.{self.class_name}"


class VisibleDevices(enum.StrEnum):
    """Which devices a workload's process sees, as CUDA_VISIBLE_DEVICES or the variable of another device type."""

    OWN = "own"
    """Those of the workload alone: its first device has index 0, whatever its local_rank."""
    ROLE = "role"
    """Those of its role on its node, in the order of local_rank: the device of index local_rank is its own."""
    NODE = "node"
    """All of the node: neither Ray nor dlrl touches the variable."""


class FailoverScope(enum.StrEnum):
    """How much restarts after a death, from least to most."""

    WORKLOAD = "workload"
    """The dead process alone; its part of the running call is done again, and the trainer notices nothing."""
    ROLE = "role"
    """All processes of its role; `fit` is entered again at the first step that was not committed."""
    SUBGRAPH = "subgraph"
    """Its role and all roles that its results can have reached; `fit` is entered again."""
    JOB = "job"
    """Everything, from the last commit."""
    STOP = "stop"
    """Nothing: the job fails with the first cause."""

    @property
    def wider(self) -> FailoverScope:
        """The next larger scope."""
        scopes = list(FailoverScope)
        return scopes[min(scopes.index(self) + 1, len(scopes) - 1)]
