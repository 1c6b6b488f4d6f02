"""`dlrl why`: what happened to a job, in one sentence, and how it came to that. It prints the incidents of the record.

Pure: it asks no process and prints nothing; `show_why` does both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dlrl_core.cli import wording
from dlrl_core.context import FindingKind, Incident, JobView, JournalEvent, Loss
from dlrl_core.failover.policy import (
    BudgetUse,
    is_same_error,
    job_use,
    node_use,
    recent_restarts,
    role_of,
    role_use,
    workload_use,
)
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.spec.job_spec import RestartBudget
from dlrl_core.spec.role_values import FailoverScope
from dlrl_why.advice import advice
from dlrl_why.outcome import Outcome
from dlrl_why.wording import clock, processes

_EVERYDAY = frozenset({"submitted", "state", "incident", "recovered"})
"""Kinds of journal events that are no link of their own: incidents come from the record."""
_COMING_UP = ("pending", "starting", "dead")


@dataclass(frozen=True, kw_only=True)
class Link:
    """One thing that happened: an incident, or another event of the journal."""

    at: float
    kind: str
    """Of the journal event; 'incident' for an incident."""
    subject: str
    message: str
    incident: Incident | None = None

    @classmethod
    def of(cls, incident: Incident) -> Link:
        return cls(
            at=incident.at, kind="incident", subject=incident.subject, message=incident.message, incident=incident
        )

    @property
    def cause(self) -> str:
        """In one line, with the fault that was injected, where one was."""
        line = _line(self.message)
        return f"{line} ({self.incident.chaos})" if self.incident and self.incident.chaos else line


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
    budgets: Sequence[BudgetUse]
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
            "chain": [_plain(link) for link in self.chain],
        }


def _plain(link: Link) -> dict[str, Any]:
    incident = link.incident and {**link.incident.model_dump(mode="json"), "seconds": link.incident.seconds}
    return {**asdict(link), "incident": incident}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One look at a job: its view by the Master or by the store, and the journal that the store keeps."""

    view: JobView
    now: float
    events: Sequence[JournalEvent] = ()
    """The journal of this run; empty if the store could not be asked."""
    is_by_record: bool = False
    """The Master was not asked, or did not answer: the view is as old as the record."""

    @property
    def name(self) -> str:
        return self.view["name"]

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def at(self) -> float:
        """The moment that counts: the end of the job, else now."""
        return self.view["ended_at"] or self.now

    @property
    def steady_at(self) -> float:
        """The same by the run's steady clock."""
        last = self.incidents[-1] if self.incidents else None
        return self.at if last is None else last.steady_at + max(0.0, self.at - last.at)

    @cached_property
    def incidents(self) -> list[Incident]:
        return [Incident.model_validate(one) for one in self.view["incidents"]]

    @cached_property
    def budget(self) -> RestartBudget:
        spec = self.view["spec"]
        said = spec.get("restart_budget") or spec.get("budget") or {}  # a record of schema 2 has the shorter name
        return RestartBudget.model_validate({key: said[key] for key in RestartBudget.model_fields if key in said})

    def progress(self, key: str) -> Any:
        return self.view["progress"].get(key)

    def declared(self, role: str) -> str:
        """The scope that a role declares; the trainer restarts as a role of its own."""
        if role == TRAINER:
            return FailoverScope.ROLE
        said = next((one.get("failover") for one in self.view["spec"].get("roles", ()) if one["role"] == role), None)
        return said or FailoverScope.JOB

    def node_address(self, node_id: str) -> str:
        """The node's address; the beginning of its id if the plan no longer has it."""
        nodes = (self.view["plan"] or {}).get("nodes", ())
        return next((one["address"] for one in nodes if one["node_id"] == node_id), "") or node_id[:12]

    @property
    def new_processes(self) -> dict[str, int]:
        """How often each process was replaced, the Master and the trainer included."""
        counts = {
            MASTER: max(0, self.view["master_incarnation"] - 1),
            TRAINER: self.view["trainer"]["incarnation"],
            **{one["name"]: one["restarts"] for one in self.view["workloads"]},
        }
        return {name: count for name, count in counts.items() if count}

    @property
    def missing(self) -> list[str]:
        """The processes that are not up."""
        names = [one["name"] for one in self.view["workloads"] if one["state"] in _COMING_UP]
        return names if self.view["trainer"]["state"] == "running" else [*names, TRAINER]


def explain(evidence: Evidence) -> Answer:
    """The answer by this evidence."""
    outcome, chain, budgets = outcome_of(evidence), _chain(evidence), list(_budgets(evidence))
    causes = _causes(outcome, evidence, chain)
    return Answer(
        name=evidence.name,
        run_id=evidence.view["run_id"],
        state=evidence.view["state"],
        outcome=outcome,
        sentence=_sentence(outcome, evidence, causes),
        first_cause=causes[0] if causes else None,
        step=evidence.progress("step"),
        committed_step=evidence.progress("committed_step"),
        lost_steps=_lost_steps(evidence),
        restarts=evidence.new_processes,
        budgets=budgets,
        budget_window_s=evidence.budget.window_s,
        next=advice(outcome, evidence, budgets),
        chain=chain,
    )


def outcome_of(evidence: Evidence) -> Outcome:
    """What keeps the job from its work counts before what it has recovered from."""
    view = evidence.view
    if evidence.is_final or view["state"] == "stopping":
        return Outcome(view["state"])
    if view["waiting_for"]:
        return Outcome.WAITING
    was_restarted = bool(evidence.new_processes)
    if view["state"] != "running" or evidence.missing:
        return Outcome.RECOVERING if was_restarted and view["state"] != "reserving" else Outcome.STARTING
    if view["degraded"]:
        return Outcome.DEGRADED
    return Outcome.RECOVERED if was_restarted else Outcome.RUNNING


# ---- the chain and its causes


def _chain(evidence: Evidence) -> list[Link]:
    """The incidents and the other events of the journal, in order."""
    others = [
        Link(at=event.at, kind=event.kind, subject=event.subject or "job", message=event.message)
        for event in evidence.events
        if event.kind not in _EVERYDAY
    ]
    return sorted([*map(Link.of, evidence.incidents), *others], key=lambda link: link.at)


def _causes(outcome: Outcome, evidence: Evidence, chain: Sequence[Link]) -> list[Link]:
    """The last trouble, from its first incident on; empty if there was none, or the state itself tells all."""
    trouble = [Link.of(one) for one in last_trouble(evidence.incidents, evidence.budget.window_s)]
    match outcome:
        case Outcome.STOPPING | Outcome.STOPPED:
            return [link for link in chain if link.kind == "stop"][-1:]
        case Outcome.DEGRADED:
            return []
        case Outcome.FAILED if not trouble or not _led_to_failure(evidence, evidence.incidents[-1]):
            return [link for link in chain if link.kind == "ended"][-1:]
        case _:
            return trouble


def _led_to_failure(evidence: Evidence, last: Incident) -> bool:
    """Whether the job failed by this incident, or before all was ready again."""
    return last.ready_at is None or bool(evidence.view["waiting_for"])


def last_trouble(incidents: Sequence[Incident], window_s: float) -> list[Incident]:
    """The last incident, and those before it with the same cause that are not further apart than this."""
    trouble: list[Incident] = []
    for one in reversed(incidents):
        if trouble and trouble[0].at - one.at > window_s:
            break
        if not trouble or _is_same_trouble(one, trouble[0]):
            trouble.insert(0, one)
    return trouble


def _is_same_trouble(one: Incident, other: Incident) -> bool:
    """Deaths in one role, or the same error of user code; the rank does not matter."""
    if one.kind is not other.kind or role_of(one.subject) != role_of(other.subject):
        return False
    return one.kind is not FindingKind.USER_ERROR or is_same_error(one, other)


# ---- the sentence


def _sentence(outcome: Outcome, evidence: Evidence, causes: Sequence[Link]) -> str:
    """What happened, with the first cause of what led to it."""
    text = f"job '{evidence.name}' {_state_words(outcome, evidence)}"
    if evidence.is_by_record and not evidence.is_final:
        text = f"by its record, {text}"
    if causes:
        text += _cause_words(causes, is_told=outcome in (Outcome.FAILED, Outcome.STOPPED, Outcome.STOPPING))
    if evidence.view["degraded"] and outcome is not Outcome.DEGRADED:
        text += f"; besides, {evidence.view['degraded']}"
    return text


def _cause_words(causes: Sequence[Link], *, is_told: bool) -> str:
    """The first cause, unless the sentence has it already, and how often it came."""
    first, last = causes[0], causes[-1]
    is_ending = is_told and (first.incident is None or (last.incident is not None and _is_stop(last.incident)))
    chaos = first.incident.chaos if first.incident else None
    more = _in_brackets(chaos) if is_ending and len(causes) == 1 else f"; first cause: {first.cause}"
    often = f"{len(causes)} times since {clock(first.at)}" if len(causes) > 1 else None
    return f"{more}{_in_brackets(often)}"


def _is_stop(incident: Incident) -> bool:
    return incident.scope is FailoverScope.STOP


def _in_brackets(text: str | None) -> str:
    return f" ({text})" if text else ""


def _line(text: str | None) -> str:
    """The first line; a user's error may have many."""
    return (text or "no reason is recorded").partition("\n")[0]


def _state_words(outcome: Outcome, evidence: Evidence) -> str:
    view, at, why = evidence.view, _at(evidence), _line(evidence.view["why"])
    took = wording.duration(evidence.at - view["submitted_at"])
    match outcome:
        case Outcome.WAITING:
            return f"waits for resources{at}: {_line(view['waiting_for'])}"
        case Outcome.STARTING:
            return f"is being started, {view['state']} for {wording.duration(evidence.now - view['state_since'])}"
        case Outcome.RUNNING:
            return f"is running{at}, and nothing was restarted"
        case Outcome.RECOVERING:
            verb = "is" if len(evidence.missing) == 1 else "are"
            return f"is being restarted{at}: {processes(evidence.missing)} {verb} not ready yet"
        case Outcome.RECOVERED:
            return f"is running again{at}, after {_restart_counts(evidence)}"
        case Outcome.DEGRADED:
            return f"is running{at}, but degraded: {view['degraded']}"
        case Outcome.STOPPING:
            return f"is being stopped{at}: {why}"
        case Outcome.FINISHED:
            counts = _restart_counts(evidence)
            return f"finished{at} in {took}, {f'after {counts}' if counts else 'and nothing was restarted'}"
        case Outcome.FAILED:
            return f"failed{at} after {took}: {why}"
        case Outcome.STOPPED:
            return f"was stopped{at} after {took}: {why}"


def _at(evidence: Evidence) -> str:
    step, phase = evidence.progress("step"), evidence.view["trainer"].get("phase")
    if step is not None:
        return f" at step {wording.steps(step, evidence.progress('total_steps'))}"
    return f" in '{phase}'" if phase else ""


def _restart_counts(evidence: Evidence) -> str:
    """How many there were; those of the Master apart, as training does not notice them."""
    counts = dict(evidence.new_processes)
    masters = counts.pop(MASTER, 0)
    said = {"process": sum(counts.values()), "master": masters}
    return " and ".join(f"{count} {what} restart{'s' * (count != 1)}" for what, count in said.items() if count)


# ---- losses and budgets

_AGAIN = {
    Loss.EVERYTHING: "it began again, as nothing was committed",
    Loss.NOT_DURABLE: "those after the last durable commit were done again",
    Loss.UNCOMMITTED: "those after the last commit were done again",
}
"""From the worst loss to the least."""


def _lost_steps(evidence: Evidence) -> str:
    """Which steps were lost. A job that failed or was stopped loses what it had not committed; there is no resume."""
    if evidence.view["state"] in ("failed", "stopped"):
        return _left_behind(evidence.progress("step"), evidence.progress("committed_step"))
    losses = {one.loss for one in evidence.incidents}
    worst = next((loss for loss in _AGAIN if loss in losses), None)
    if worst is None:
        return "none"
    return f"none in the end; {_AGAIN[worst]}" if evidence.is_final else f"none so far; {_AGAIN[worst]}"


def _left_behind(step: int | None, committed: int | None) -> str:
    if step is None:
        return "none; no step had begun"
    if committed is None:
        return f"all; nothing was committed, and it was in step {step}"
    if step <= committed:
        return f"none; step {committed} was committed"
    return f"those after step {committed}, the last one committed; it was in step {step}"


def _budgets(evidence: Evidence) -> Iterator[BudgetUse]:
    """The job's budget, and each other one of which something is used; as of the end of a job that has ended."""
    budget, recent = evidence.budget, recent_restarts(evidence.incidents, evidence.budget, evidence.steady_at)
    for name in sorted({one.subject for one in recent}):
        if evidence.declared(role_of(name)) == FailoverScope.WORKLOAD:
            yield workload_use(name, recent, budget)
    for role in sorted({role_of(one.subject) for one in recent if one.scope is not FailoverScope.WORKLOAD}):
        if evidence.declared(role) not in (FailoverScope.JOB, FailoverScope.STOP):
            yield role_use(role, recent, budget)
    yield job_use(recent, budget)
    for node_id in sorted({one.node_id for one in recent if one.node_id and budget.node}):
        used = node_use(node_id, recent, budget)
        yield BudgetUse(kind="node", name=evidence.node_address(node_id), used=used.used, allowed=used.allowed)
