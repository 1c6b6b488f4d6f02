"""What shall be restarted, and why."""

from __future__ import annotations

from dataclasses import dataclass

from dlrl_core.diagnosis import Finding
from dlrl_core.spec.role_values import FailoverScope

__all__ = ["FailoverDecision", "FailoverScope"]


@dataclass(frozen=True, kw_only=True)
class FailoverDecision:
    """Made by a policy, written to the journal, then carried out by the control loop."""

    scope: FailoverScope
    finding: Finding
    reason: str
    wait_s: float = 0.0
    """Before anything is restarted: a process that keeps dying is given more and more time."""
