"""What a job shall survive: how much restarts after a death, and how often."""

from __future__ import annotations

import enum


class FailoverScope(enum.StrEnum):
    """How much restarts, from least to most."""

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
