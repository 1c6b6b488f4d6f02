"""What to do next."""

from __future__ import annotations

from collections.abc import Sequence

from dlrl_core.cli.why.budgets import BudgetLeft
from dlrl_core.cli.why.chain import findings_in
from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link
from dlrl_core.cli.why.outcome import Outcome
from dlrl_core.diagnosis import FindingKind
from dlrl_core.failover import FailoverScope, role_of

_NEXT_TIME = {
    "workload": "its role restarts, or the job",
    "role": "the job restarts",
    "job": "it fails; allow more with .restart_budget(job=...)",
    "node": "its workloads move to another node",
}


def advice(outcome: Outcome, evidence: Evidence, chain: Sequence[Link], budgets: Sequence[BudgetLeft]) -> list[str]:
    """Sentences, the most urgent first; empty if there is nothing to do."""
    name = evidence.name
    again = f"run it again under the name '{name}'; it starts from the beginning, as there is no resume yet"
    match outcome:
        case Outcome.WAITING:
            return ["free or add what is missing", f"or give it up: dlrl stop {name}"]
        case Outcome.STARTING | Outcome.RECOVERING:
            return [f"wait; who is still missing shows: dlrl status {name}"]
        case Outcome.DEGRADED:
            return ["bring the store back; until then, what waits for it would be lost with the master"]
        case Outcome.RECOVERED:
            return [*_about_last(evidence, chain), *_about_spent(evidence, budgets)]
        case Outcome.FAILED:
            return [*_about_failure(evidence, chain, budgets), again]
        case Outcome.STOPPED:
            return [again]
        case Outcome.RUNNING | Outcome.STOPPING | Outcome.FINISHED:
            return []


def _about_last(evidence: Evidence, chain: Sequence[Link]) -> list[str]:
    findings = findings_in(chain)
    return _about_cause(evidence, findings[-1]) if findings else []


def _about_cause(evidence: Evidence, found: Link) -> list[str]:
    """How to find out more of what was found."""
    if found.trigger and found.trigger.startswith("chaos"):
        return ["nothing to repair: it was broken on purpose"]
    if found.trigger:
        return [f"see in its stacks where it hung: dlrl why {evidence.name} --json"]
    if found.finding == FindingKind.USER_ERROR:
        return ["see to the error in your code; if it comes again at the same step, the job fails"]
    if found.finding == FindingKind.CALL_LOST:
        return []
    return [f"find out why it died: in the system's log {_where(evidence, found)}and in Ray's worker logs there"]


def _where(evidence: Evidence, found: Link) -> str:
    """The node of a workload that died, if the record knows it: its restart was written with the decision."""
    at = found.response.at if found.response else found.at
    died = [one for one in evidence.restarts if one.subject == found.subject and one.node_id]
    nearest = min(died, key=lambda one: abs(one.at - at), default=None)
    workload = evidence.workload(found.subject)
    node_id = (nearest and nearest.node_id) or (workload and workload["node_id"])
    return f"of node {evidence.node_address(node_id)} " if node_id else "of its node "


def _about_spent(evidence: Evidence, budgets: Sequence[BudgetLeft]) -> list[str]:
    window = f"within {evidence.budget.window_s:g} s"
    return [
        f"{one.of} had all {one.allowed} restarts it may have {window}; the next time, {_NEXT_TIME[one.kind]}"
        for one in budgets
        if one.used and not one.left
    ]


def _about_failure(evidence: Evidence, chain: Sequence[Link], budgets: Sequence[BudgetLeft]) -> list[str]:
    if evidence.view["waiting_for"]:
        return ["free or add what is missing, or let it wait longer: dlrl run --wait SECONDS"]
    found = next(iter(findings_in(chain)[-1:]), None)
    if found is None or found.response is None or found.response.scope != FailoverScope.STOP:
        return ["see to what the first sentence names"]
    if found.finding == FindingKind.USER_ERROR:
        return ["fix the error in your code"]
    return [*_about_cause(evidence, found), *_about_stop(evidence, found, budgets)]


def _about_stop(evidence: Evidence, found: Link, budgets: Sequence[BudgetLeft]) -> list[str]:
    """Why it was not restarted once more, and what would change that."""
    role = role_of(found.subject)
    if evidence.declared(role) == FailoverScope.STOP:
        return [f"role '{role}' declares failover 'stop'; declare another scope to survive this"]
    if any(one.kind == "job" and not one.left for one in budgets):
        return ["if it is worth more restarts, allow them: .restart_budget(job=...)"]
    return []
