"""What shall be restarted, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dlrl_core.diagnosis import Finding


class FailoverScope(enum.StrEnum):
    """How much restarts, from least to most."""

    WORKLOAD = "workload"
    ROLE = "role"
    SUBGRAPH = "subgraph"
    JOB = "job"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class FailoverDecision:
    """Made by a policy, written to the journal, then carried out by the control loop."""

    scope: FailoverScope
    finding: Finding
    reason: str
