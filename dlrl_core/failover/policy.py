"""Failover policies: how much restarts after a finding. Pure: they neither wait nor act."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlrl_core.diagnosis import Finding, FindingKind
from dlrl_core.failover.decision import FailoverDecision, FailoverScope
from dlrl_core.spec.job_spec import RestartBudget

TRAINER = "trainer"


@dataclass(frozen=True, kw_only=True)
class PastRestart:
    """Something that was restarted before, by this Master or an earlier one."""

    at: float
    scope: FailoverScope
    subject: str
    """The workload that had died, or 'trainer'."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """All that a policy may look at."""

    declared: Mapping[str, FailoverScope]
    """What each role says it survives."""
    budget: RestartBudget
    past: Sequence[PastRestart]
    now: float
    has_commit: bool
    stateful: frozenset[str] = frozenset()
    """Roles whose state is committed."""
    repeats: bool = False
    """The same error came at the same step before the last restart."""

    def recent(self) -> list[PastRestart]:
        return [one for one in self.past if self.now - one.at <= self.budget.window_s]


class FailoverPolicy(ABC):
    """Decides how much restarts after a finding."""

    @abstractmethod
    def decide(self, finding: Finding, situation: Situation) -> FailoverDecision:
        """The decision for this finding."""


class EscalatingPolicy(FailoverPolicy):
    """As much as the role declares; more if that did not help; nothing if the budget is spent or it would repeat."""

    def decide(self, finding: Finding, situation: Situation) -> FailoverDecision:
        if finding.kind is FindingKind.USER_ERROR:
            scope, reason = self._after_error(finding, situation)
        else:
            scope, reason = self._after_death(finding, situation)
        scope, reason = self._within_budget(finding, situation, scope, reason)
        return FailoverDecision(scope=scope, finding=finding, reason=reason, wait_s=self._wait_s(finding, situation))

    def _after_error(self, finding: Finding, situation: Situation) -> tuple[FailoverScope, str]:
        if not situation.has_commit:
            return FailoverScope.STOP, "user code raised before anything was committed; it would raise again"
        if situation.repeats:
            return FailoverScope.STOP, "the same error came at the same step again after a restart"
        scope = self._declared(finding.subject, situation)
        return max(scope, FailoverScope.ROLE, key=list(FailoverScope).index), "user code raised for the first time here"

    def _after_death(self, finding: Finding, situation: Situation) -> tuple[FailoverScope, str]:
        scope = self._declared(finding.subject, situation)
        if finding.kind is FindingKind.CALL_LOST:
            scope = max(scope, FailoverScope.ROLE, key=list(FailoverScope).index)
        needs_commit = scope in (FailoverScope.ROLE, FailoverScope.SUBGRAPH) or (
            scope is FailoverScope.WORKLOAD and role_of(finding.subject) in situation.stateful
        )
        if needs_commit and not situation.has_commit:
            return FailoverScope.JOB, f"'{finding.subject}' restarts from a commit, and nothing was committed yet"
        return scope, f"that is what '{finding.subject}' declares to survive"

    def _declared(self, subject: str, situation: Situation) -> FailoverScope:
        if subject == TRAINER:
            return FailoverScope.ROLE
        return situation.declared[role_of(subject)]

    def _within_budget(
        self, finding: Finding, situation: Situation, scope: FailoverScope, reason: str
    ) -> tuple[FailoverScope, str]:
        """More, where the same was restarted too often within the window."""
        recent, budget = situation.recent(), situation.budget
        counts = {
            FailoverScope.WORKLOAD: (sum(one.subject == finding.subject for one in recent), budget.workload),
            FailoverScope.ROLE: (
                sum(role_of(one.subject) == role_of(finding.subject) for one in recent if one.scope != "workload"),
                budget.role,
            ),
            FailoverScope.JOB: (sum(one.scope is FailoverScope.JOB for one in recent), budget.job),
        }
        counts[FailoverScope.SUBGRAPH] = counts[FailoverScope.ROLE]
        while scope is not FailoverScope.STOP:
            done, most = counts[scope]
            if done < most:
                break
            reason = f"{done} restarts of scope '{scope}' within {budget.window_s:g} s are all that is allowed"
            scope = FailoverScope.JOB if scope is FailoverScope.ROLE else scope.wider
            if scope in (FailoverScope.ROLE, FailoverScope.SUBGRAPH) and not situation.has_commit:
                scope = FailoverScope.JOB
        return scope, reason

    def _wait_s(self, finding: Finding, situation: Situation) -> float:
        """None for the first restart of a process; then more and more."""
        before = sum(one.subject == finding.subject for one in situation.recent())
        return situation.budget.backoff_s * 2 ** (before - 1) if before else 0.0


def role_of(subject: str) -> str:
    """The role of a workload by its name; the trainer is a role of its own."""
    return subject.rpartition("-")[0] or subject
