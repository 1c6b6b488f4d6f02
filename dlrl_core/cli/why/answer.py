"""Answer: what happened to a job, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlrl_core.cli.why.advice import advice
from dlrl_core.cli.why.budgets import BudgetLeft, budgets_left
from dlrl_core.cli.why.chain import chain_of, last_trouble
from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link
from dlrl_core.cli.why.lost_steps import lost_steps
from dlrl_core.cli.why.outcome import Outcome, headline, outcome_of
from dlrl_core.failover import FailoverScope


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All that `dlrl why` tells."""

    name: str
    run_id: str
    state: str
    outcome: Outcome
    sentence: str
    first_cause: Link | None
    step: int | None
    committed_step: int | None
    lost_steps: str
    restarts: dict[str, int]
    """New processes, by name."""
    budgets: Sequence[BudgetLeft]
    budget_window_s: float
    next: Sequence[str]
    chain: Sequence[Link]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        cause = self.first_cause
        return {
            **asdict(self),
            "first_cause": cause and {"at": cause.at, "subject": cause.subject, "message": cause.cause},
            "budgets": [{**asdict(one), "left": one.left} for one in self.budgets],
        }


def explain(evidence: Evidence) -> Answer:
    """The answer by this evidence."""
    outcome, chain, budgets = outcome_of(evidence), chain_of(evidence), budgets_left(evidence)
    causes = causes_of(outcome, evidence, chain)
    return Answer(
        name=evidence.name,
        run_id=evidence.view["run_id"],
        state=evidence.view["state"],
        outcome=outcome,
        sentence=headline(outcome, evidence, causes),
        first_cause=causes[0] if causes else None,
        step=evidence.step,
        committed_step=evidence.committed_step,
        lost_steps=lost_steps(evidence, chain),
        restarts=evidence.new_processes,
        budgets=budgets,
        budget_window_s=evidence.budget.window_s,
        next=advice(outcome, evidence, chain, budgets),
        chain=chain,
    )


def causes_of(outcome: Outcome, evidence: Evidence, chain: Sequence[Link]) -> list[Link]:
    """The last trouble, from its first cause on; empty if there was none, or the state itself tells all."""
    trouble = last_trouble(chain, evidence.budget.window_s)
    match outcome:
        case Outcome.STOPPING | Outcome.STOPPED:
            return _last("stop", chain)
        case Outcome.DEGRADED:
            return []
        case Outcome.FAILED if not trouble or not _led_to_failure(evidence, trouble[-1]):
            return _last("ended", chain)
        case _:
            return trouble


def _last(kind: str, chain: Sequence[Link]) -> list[Link]:
    return [link for link in chain if link.kind == kind][-1:]


def _led_to_failure(evidence: Evidence, last: Link) -> bool:
    """Whether the job failed by this finding, or before it had recovered from it."""
    response = last.response
    if response is None or response.scope == FailoverScope.STOP or evidence.view["waiting_for"]:
        return True
    restarted = [one for name in response.restarts if (one := evidence.workload(name)) is not None]
    return any(one["pid"] is None for one in restarted)
