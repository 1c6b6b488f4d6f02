"""From a decision to which processes are restarted, what that loses, and the incident that is written about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlrl_core.context.records import Incident, JobRecord, Loss, WorkloadRecord
from dlrl_core.failover.finding import TRAINER, Finding
from dlrl_core.failover.policy import FailoverDecision, role_of
from dlrl_core.graph import downstream
from dlrl_core.spec.role_values import FailoverScope


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
    if scope is FailoverScope.STOP:
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
    node_id: str | None = None,
    stacks: str | None = None,
    chaos: str | None = None,
) -> Incident:
    """The incident as it is written before anything is restarted. `node_id`: where a process died that counts."""
    return Incident(
        number=record.incidents[-1].number + 1 if record.incidents else 1,
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


def completed(incident: Incident, ready_at: float, *, is_state_lost: bool) -> Incident:
    """The incident when all processes are ready. `is_state_lost`: commits in the memory of a lost node are gone."""
    is_durable = is_state_lost and incident.loss is Loss.UNCOMMITTED
    loss = Loss.NOT_DURABLE if is_durable else incident.loss
    return incident.model_copy(update={"ready_at": ready_at, "loss": loss})
