"""Failover policies."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dlrl_core.diagnosis import Finding
from dlrl_core.failover.decision import FailoverDecision, FailoverScope


class FailoverPolicy(ABC):
    """Decides how much restarts after a finding."""

    @abstractmethod
    def decide(self, finding: Finding) -> FailoverDecision:
        """The decision for this finding. Pure: it neither waits nor acts."""


class StopPolicy(FailoverPolicy):
    """Nothing restarts: the job ends with the first cause. What a job gets that declares no scope to survive."""

    def decide(self, finding: Finding) -> FailoverDecision:
        return FailoverDecision(
            scope=FailoverScope.STOP,
            finding=finding,
            reason="no role of this job declares what it can survive",
        )
