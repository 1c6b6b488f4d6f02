"""From a finding to what restarts: how much (the decision), which processes (the recovery), and the incident. Pure.

As much restarts as the role declares, more if that was not enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlrl_core.context.records import FindingKind, Incident, JobRecord, Loss, Reason, WorkloadRecord
from dlrl_core.failover.finding import Finding
from dlrl_core.graph import downstream
from dlrl_core.roles import MASTER, TRAINER, RoleType
from dlrl_core.spec import JobSpec
from dlrl_core.spec.job_spec import RestartBudget
from dlrl_core.spec.role_values import FailoverScope

_SCOPES = list(FailoverScope)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """All that a decision depends on, besides the finding."""

    declared: Mapping[str, FailoverScope]
    """The scope that each role declares."""
    budget: RestartBudget
    incidents: Sequence[Incident]
    """Of this run, oldest first."""
    now: float
    """By the run's steady clock."""
    has_commit: bool
    stateful: frozenset[str] = frozenset()
    """Roles whose state is committed."""


@dataclass(frozen=True, kw_only=True)
class FailoverDecision:
    """What is to be restarted, and why."""

    scope: FailoverScope
    reason: Reason
    explanation: str
    """The reason in one sentence."""
    wait_s: float = 0.0
    """Before anything is restarted: a process that keeps dying is given more and more time."""


def decide(finding: Finding, situation: Situation) -> FailoverDecision:
    """The scope that the role declares; a wider one if its budget is spent; 'stop' if it would only fail again."""
    if finding.kind is FindingKind.COMMIT_LOST:
        text = "training would begin again at step 1 beside trained models; that is not done unasked"
        return FailoverDecision(scope=FailoverScope.STOP, reason=Reason.COMMIT_LOST, explanation=text)
    choose = _after_error if finding.kind is FindingKind.USER_ERROR else _after_death
    scope, reason, explanation = _within_budget(finding, situation, *choose(finding, situation))
    wait_s = _wait_s(finding, situation)
    return FailoverDecision(scope=scope, reason=reason, explanation=explanation, wait_s=wait_s)


_Choice = tuple[FailoverScope, Reason, str]


def _after_error(finding: Finding, situation: Situation) -> _Choice:
    if not situation.has_commit:
        text = "user code raised before anything was committed; it would raise again"
        return FailoverScope.STOP, Reason.ERROR_BEFORE_COMMIT, text
    if _is_repeated(finding, situation):
        text = "the same error came at the same step again after a restart"
        return FailoverScope.STOP, Reason.SAME_ERROR_AGAIN, text
    scope = _wider_of(declared_scope(finding.subject, situation.declared), FailoverScope.ROLE)
    return scope, Reason.FIRST_ERROR, "user code raised for the first time here"


def _is_repeated(finding: Finding, situation: Situation) -> bool:
    last = next((one for one in reversed(situation.incidents) if one.kind is FindingKind.USER_ERROR), None)
    return last is not None and is_same_error(finding, last)


def is_same_error(one: Finding | Incident, other: Finding | Incident) -> bool:
    """Whether two errors of user code have the same identity, at the same step."""
    return one.error is not None and (one.error, one.step) == (other.error, other.step)


def _after_death(finding: Finding, situation: Situation) -> _Choice:
    scope, role = declared_scope(finding.subject, situation.declared), role_of(finding.subject)
    if finding.kind is FindingKind.CALL_LOST:
        scope = _wider_of(scope, FailoverScope.ROLE)
    is_stateful = scope is FailoverScope.WORKLOAD and role in situation.stateful
    if (_goes_back(scope) or is_stateful) and not situation.has_commit:
        text = f"'{finding.subject}' restarts from a commit, and nothing was committed yet"
        return FailoverScope.JOB, Reason.NO_COMMIT, text
    return scope, Reason.DECLARED, f"that is what '{finding.subject}' declares to survive"


def _wider_of(one: FailoverScope, other: FailoverScope) -> FailoverScope:
    return max(one, other, key=_SCOPES.index)


def _goes_back(scope: FailoverScope) -> bool:
    return scope in (FailoverScope.ROLE, FailoverScope.SUBGRAPH)


def declared_scope(subject: str, declared: Mapping[str, FailoverScope]) -> FailoverScope:
    """The scope that the role of a workload declares; the trainer restarts as a role of its own."""
    return FailoverScope.ROLE if subject == TRAINER else declared[role_of(subject)]


def role_of(subject: str) -> str:
    """The role of a workload by its name; the trainer is a role of its own."""
    return subject.rpartition("-")[0] or subject


# ---- budgets


@dataclass(frozen=True, kw_only=True)
class BudgetUse:
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


def recent_restarts(incidents: Sequence[Incident], budget: RestartBudget, now: float) -> list[Incident]:
    """The incidents within the window of the budget that led to a restart."""
    return [one for one in incidents if one.scope is not FailoverScope.STOP and now - one.steady_at <= budget.window_s]


def workload_use(name: str, recent: Sequence[Incident], budget: RestartBudget) -> BudgetUse:
    used = sum(one.subject == name for one in recent)
    return BudgetUse(kind="workload", name=name, used=used, allowed=budget.workload)


def role_use(role: str, recent: Sequence[Incident], budget: RestartBudget) -> BudgetUse:
    used = sum(role_of(one.subject) == role for one in recent if one.scope is not FailoverScope.WORKLOAD)
    return BudgetUse(kind="role", name=role, used=used, allowed=budget.role)


def job_use(recent: Sequence[Incident], budget: RestartBudget) -> BudgetUse:
    used = sum(one.scope is FailoverScope.JOB for one in recent)
    return BudgetUse(kind="job", name="job", used=used, allowed=budget.job)


def node_use(node_id: str, recent: Sequence[Incident], budget: RestartBudget) -> BudgetUse:
    used = sum(one.node_id == node_id for one in recent)
    return BudgetUse(kind="node", name=node_id, used=used, allowed=budget.node)


def _within_budget(
    finding: Finding, situation: Situation, scope: FailoverScope, reason: Reason, explanation: str
) -> _Choice:
    """A wider scope where the same was restarted too often within the window."""
    budget = situation.budget
    recent = recent_restarts(situation.incidents, budget, situation.now)
    of_role = role_use(role_of(finding.subject), recent, budget)
    uses = {
        FailoverScope.WORKLOAD: workload_use(finding.subject, recent, budget),
        FailoverScope.ROLE: of_role,
        FailoverScope.SUBGRAPH: of_role,
        FailoverScope.JOB: job_use(recent, budget),
    }
    while scope is not FailoverScope.STOP and not uses[scope].left:
        reason = Reason.BUDGET_SPENT
        allowed = f"{uses[scope].used} restarts of scope '{scope}' within {budget.window_s:g} s"
        explanation = f"{allowed} are all that is allowed"
        scope = FailoverScope.JOB if scope is FailoverScope.ROLE else scope.wider
        if finding.subject == MASTER:
            scope = FailoverScope.STOP  # no wider restart would help it
        if _goes_back(scope) and not situation.has_commit:
            scope = FailoverScope.JOB
    return scope, reason, explanation


def _wait_s(finding: Finding, situation: Situation) -> float:
    """0 for the first restart of a process; then doubled with each."""
    recent = recent_restarts(situation.incidents, situation.budget, situation.now)
    before = sum(one.subject == finding.subject for one in recent)
    return situation.budget.backoff_s * 2 ** (before - 1) if before else 0.0


_RESTARTS = {
    FailoverScope.WORKLOAD: "the process alone; its part of the running call is done again",
    FailoverScope.ROLE: "all of {role}, from the last commit; the other roles stay",
    FailoverScope.SUBGRAPH: "{role} and the roles its results reached, from the last commit",
    FailoverScope.JOB: "the whole job, from the last commit",
    FailoverScope.STOP: "nothing: the job fails with the first cause",
}


def declared_scopes(spec: JobSpec) -> dict[RoleType, FailoverScope]:
    """What each role survives; a role that declares nothing takes the whole job with it."""
    return {role.role: role.failover or FailoverScope.JOB for role in spec.roles}


def deaths_of(spec: JobSpec) -> dict[RoleType, str]:
    """For each role of the job, what restarts when one of its processes dies."""
    return {role: _RESTARTS[scope].format(role=role.value) for role, scope in declared_scopes(spec).items()}


# ---- recovery


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Which processes are started again."""

    names: frozenset[str]
    """Workloads."""
    with_trainer: bool = False
    is_rollback: bool = False
    """Whether the trainer enters `fit` again."""

    @property
    def processes(self) -> tuple[str, ...]:
        return (*sorted(self.names), *((TRAINER,) if self.with_trainer else ()))


def plan_recovery(
    finding: Finding,
    scope: FailoverScope,
    workloads: Mapping[str, WorkloadRecord],
    edges: Iterable[tuple[str, str]],
    *,
    is_trainer_over: bool,
) -> Recovery:
    """What the scope restarts. `is_trainer_over`: its `run` has ended, so it needs a new process in any case."""
    if scope is FailoverScope.STOP or finding.subject == MASTER:
        return Recovery(names=frozenset())
    names = _restarted(finding.subject, scope, workloads, edges)
    is_trainer = scope is FailoverScope.JOB or finding.subject == TRAINER
    is_stateful = any(workloads[name].is_stateful for name in names)
    return Recovery(
        names=names,
        with_trainer=is_trainer or is_trainer_over,
        is_rollback=scope is not FailoverScope.WORKLOAD or is_stateful,
    )


def _restarted(
    subject: str, scope: FailoverScope, workloads: Mapping[str, WorkloadRecord], edges: Iterable[tuple[str, str]]
) -> frozenset[str]:
    if scope is FailoverScope.JOB:
        return frozenset(workloads)
    if subject == TRAINER:
        return frozenset()
    if scope is FailoverScope.WORKLOAD:
        return frozenset({subject})
    roles = {role_of(subject)}
    if scope is FailoverScope.SUBGRAPH:
        roles |= downstream(role_of(subject), edges)
    return frozenset(name for name in workloads if role_of(name) in roles)


def incident_of(
    finding: Finding,
    decision: FailoverDecision,
    recovery: Recovery,
    record: JobRecord,
    *,
    now: float,
    node_id: str | None = None,
    stacks: str | None = None,
    chaos: str | None = None,
) -> Incident:
    """The incident as it is written before anything is restarted. `node_id`: where a process died that counts."""
    return Incident(
        number=record.incidents[-1].number + 1 if record.incidents else 1,
        steady_at=now,
        kind=finding.kind,
        subject=finding.subject,
        message=finding.message,
        step=finding.step,
        error=finding.error,
        chaos=chaos,
        stacks=stacks,
        scope=decision.scope,
        reason=decision.reason,
        explanation=decision.explanation,
        restarts=recovery.processes,
        is_rollback=recovery.is_rollback,
        node_id=node_id,
        loss=_loss(recovery, has_commit=record.progress.commit_json is not None),
    )


def _loss(recovery: Recovery, *, has_commit: bool) -> Loss:
    if not recovery.is_rollback:
        return Loss.NOTHING
    return Loss.UNCOMMITTED if has_commit else Loss.EVERYTHING


def completed(incident: Incident, now: float, *, is_state_lost: bool) -> Incident:
    """The incident when all processes are ready. `is_state_lost`: commits in the memory of a lost node are gone."""
    ready_at = incident.at + now - incident.steady_at
    is_durable = is_state_lost and incident.loss is Loss.UNCOMMITTED
    loss = Loss.NOT_DURABLE if is_durable else incident.loss
    return incident.model_copy(update={"ready_at": ready_at, "loss": loss})
