"""What to do next, for each thing that can have happened to a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlrl_core.context import FindingKind, Incident, Reason
from dlrl_core.failover.policy import BudgetUse, role_of
from dlrl_core.spec.role_values import FailoverScope
from dlrl_why.outcome import Outcome

if TYPE_CHECKING:
    from dlrl_why.explain import Evidence

_NEXT_TIME = {
    "workload": "its role restarts, or the job",
    "role": "the job restarts",
    "job": "it fails; allow more with .restart_budget(job=...)",
    "node": "its workloads move to another node",
}


def advice(outcome: Outcome, evidence: Evidence, budgets: Sequence[BudgetUse]) -> list[str]:
    """Sentences, the most urgent first; empty if there is nothing to do."""
    name = evidence.name
    again = f"run it again under the name '{name}'; it starts from the beginning, as there is no resume yet"
    match outcome:
        case Outcome.WAITING:
            return ["free or add what is missing", f"or give it up: dlrl stop {name}"]
        case Outcome.STARTING | Outcome.RECOVERING:
            return [f"wait; which processes are missing shows: dlrl status {name}"]
        case Outcome.DEGRADED:
            return ["bring the store back; until then, changes that wait for it would be lost with the master"]
        case Outcome.RECOVERED:
            return [*_about_cause(evidence, evidence.incidents[-1:]), *_about_spent(evidence, budgets)]
        case Outcome.FAILED:
            return [*_about_failure(evidence, budgets), again]
        case Outcome.STOPPED:
            return [again]
        case Outcome.RUNNING | Outcome.STOPPING | Outcome.FINISHED:
            return []


def _about_cause(evidence: Evidence, incidents: Sequence[Incident]) -> list[str]:
    """How to find out more about the last incident."""
    for one in incidents:
        if one.chaos:
            return ["nothing to repair: it was broken on purpose"]
        match one.kind:
            case FindingKind.HUNG:
                return [f"see in its stacks where it hung: dlrl why {evidence.name} --json"]
            case FindingKind.START_FAILED:
                return ["see to what keeps the process from starting: memory, ports, storage or network of its node"]
            case FindingKind.MASTER_FAILED:
                return ["that is an error in dlrl or a plugin: report it, with its output in Ray's worker logs"]
            case FindingKind.USER_ERROR:
                return ["see to the error in your code; if it comes again at the same step, the job fails"]
            case FindingKind.COMMIT_LOST:
                return ["bring back what the first sentence names, or begin anew by submitting the job again"]
            case FindingKind.PROCESS_DIED:
                node = f"of node {evidence.node_address(one.node_id)}" if one.node_id else "of its node"
                return [f"find out why it died: in the system's log {node} and in Ray's worker logs there"]
    return []


def _about_spent(evidence: Evidence, budgets: Sequence[BudgetUse]) -> list[str]:
    window = f"within {evidence.budget.window_s:g} s"
    return [
        f"{one.of} had all {one.allowed} restarts it may have {window}; the next time, {_NEXT_TIME[one.kind]}"
        for one in budgets
        if one.used and not one.left
    ]


def _about_failure(evidence: Evidence, budgets: Sequence[BudgetUse]) -> list[str]:
    if evidence.view["waiting_for"]:
        return ["free or add what is missing, or let it wait longer: dlrl run --wait SECONDS"]
    last = evidence.incidents[-1] if evidence.incidents else None
    if last is None or last.scope is not FailoverScope.STOP:
        return ["see to what the first sentence names"]
    if last.kind is FindingKind.USER_ERROR:
        return ["fix the error in your code"]
    return [*_about_cause(evidence, [last]), *_about_stop(last, budgets)]


def _about_stop(last: Incident, budgets: Sequence[BudgetUse]) -> list[str]:
    """Why it was not restarted once more, and what would change that."""
    if last.reason is Reason.DECLARED:
        return [f"role '{role_of(last.subject)}' declares failover 'stop'; declare another scope to survive this"]
    if any(one.kind == "job" and not one.left for one in budgets):
        return ["if it is worth more restarts, allow them: .restart_budget(job=...)"]
    return []
