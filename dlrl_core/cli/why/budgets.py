"""How many restarts are left, counted as the failover policy counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.context import RestartRecord
from dlrl_core.failover import FailoverScope, role_of

_NARROW = (FailoverScope.WORKLOAD, FailoverScope.ROLE, FailoverScope.SUBGRAPH)
"""Scopes for which the restarts of the role are counted; of any other, only those of the job are."""


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """The restarts that something may have within the window, and has had."""

    kind: str
    """workload, role, job or node."""
    name: str
    used: int
    allowed: int

    @property
    def of(self) -> str:
        """In words."""
        return "the job" if self.kind == "job" else f"{self.kind} '{self.name}'"

    @property
    def left(self) -> int:
        return max(0, self.allowed - self.used)


def budgets_left(evidence: Evidence) -> list[BudgetLeft]:
    """The job's budget, and each other one of which something is used; as of the end of a job that has ended."""
    return [*_of_workloads(evidence), *_of_roles(evidence), _of_job(evidence), *_of_nodes(evidence)]


def _of_workloads(evidence: Evidence) -> Iterator[BudgetLeft]:
    subjects = Counter(one.subject for one in _recent(evidence))
    for name, used in sorted(subjects.items()):
        if evidence.declared(role_of(name)) == FailoverScope.WORKLOAD:
            yield BudgetLeft(kind="workload", name=name, used=used, allowed=evidence.budget.workload)


def _of_roles(evidence: Evidence) -> Iterator[BudgetLeft]:
    roles = Counter(role_of(one.subject) for one in _recent(evidence) if one.scope is not FailoverScope.WORKLOAD)
    for role, used in sorted(roles.items()):
        if evidence.declared(role) in _NARROW:
            yield BudgetLeft(kind="role", name=role, used=used, allowed=evidence.budget.role)


def _of_job(evidence: Evidence) -> BudgetLeft:
    used = sum(one.scope is FailoverScope.JOB for one in _recent(evidence))
    return BudgetLeft(kind="job", name=evidence.name, used=used, allowed=evidence.budget.job)


def _of_nodes(evidence: Evidence) -> Iterator[BudgetLeft]:
    nodes = Counter(one.node_id for one in _recent(evidence) if one.node_id)
    for node_id, used in sorted(nodes.items()):
        if evidence.budget.node:
            name = evidence.node_address(node_id)
            yield BudgetLeft(kind="node", name=name, used=used, allowed=evidence.budget.node)


def _recent(evidence: Evidence) -> list[RestartRecord]:
    return [one for one in evidence.restarts if evidence.at - one.at <= evidence.budget.window_s]
