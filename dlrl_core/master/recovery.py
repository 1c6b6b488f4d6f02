"""From a decision to what exactly is restarted, and the record of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from dlrl_core.context import EndingRecord, JobContext, JobState, RestartRecord, WorkloadState
from dlrl_core.diagnosis import Finding, FindingKind
from dlrl_core.failover import FailoverDecision, FailoverScope, PastRestart, Situation, declared_scopes, role_of
from dlrl_core.scheduler.names import TRAINER
from dlrl_core.spec import JobSpec

_REMEMBERED = 200
"""Restarts that are kept for counting."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Which processes are started again."""

    names: frozenset[str]
    with_trainer: bool = False
    is_back_to_commit: bool = False
    """The trainer has to enter `fit` again."""
    is_first: bool = False
    """Nothing of it was there before: who is found under a name is who the driver started for us."""

    @classmethod
    def everything(cls, context: JobContext, *, is_first: bool) -> Recovery:
        return cls(names=frozenset(context.workloads), with_trainer=True, is_first=is_first)


def situation_of(context: JobContext, spec: JobSpec, finding: Finding) -> Situation:
    """What the policy may look at."""
    record = context.record
    return Situation(
        declared={str(role): scope for role, scope in declared_scopes(spec).items()},
        stateful=frozenset(str(one.role) for one in context.workloads.values() if one.is_stateful),
        budget=spec.restart_budget,
        past=[PastRestart(at=one.at, scope=one.scope, subject=one.subject) for one in record.restarts],
        now=time.time(),
        has_commit=record.progress.commit_json is not None,
        repeats=finding.kind is FindingKind.USER_ERROR and record.last_error == _error_key(finding.message),
    )


def _error_key(message: str) -> str:
    """The same error on another rank is the same error: which of several ranks is heard first is chance."""
    return re.sub(r" rank \d+ ", " rank ", message)


def plan_recovery(
    decision: FailoverDecision, context: JobContext, edges: Iterable[tuple[str, str]], *, is_trainer_over: bool
) -> Recovery:
    """What the decision restarts. `is_trainer_over`: its `run` has ended, so it needs a new process in any case."""
    subject = decision.finding.subject
    names, with_trainer = _restarted(decision.scope, subject, context, list(edges))
    is_stateful = any(context.workloads[name].is_stateful for name in names)
    return Recovery(
        names=names,
        with_trainer=with_trainer or is_trainer_over,
        is_back_to_commit=decision.scope is not FailoverScope.WORKLOAD or is_stateful,
    )


def _restarted(
    scope: FailoverScope, subject: str, context: JobContext, edges: list[tuple[str, str]]
) -> tuple[frozenset[str], bool]:
    if scope is FailoverScope.STOP:
        return frozenset(), False
    if scope is FailoverScope.JOB:
        return frozenset(context.workloads), True
    if subject == TRAINER:
        return frozenset(), True
    if scope is FailoverScope.WORKLOAD:
        return frozenset({subject}), False
    roles = {role_of(subject)}
    if scope is FailoverScope.SUBGRAPH:
        roles |= _reached(role_of(subject), edges)
    return frozenset(name for name in context.workloads if role_of(name) in roles), False


def _reached(role: str, edges: list[tuple[str, str]]) -> set[str]:
    """The roles that results of this one can have come to."""
    reached: set[str] = set()
    frontier = {role}
    while frontier:
        frontier = {target for source, target in edges if source in frontier} - reached
        reached |= frontier
    return reached


def write_recovery(
    decision: FailoverDecision, recovery: Recovery, context: JobContext, *, node_id: str | None = None
) -> None:
    """The finding, the decision and all that will be restarted, in one commit, before any of it is done.

    `node_id`: where a process died that was not counted yet.
    """
    finding, record = decision.finding, context.record
    is_restart = decision.scope is not FailoverScope.STOP
    with context.change() as change:
        change.event("finding", finding.message, subject=finding.subject, finding=str(finding.kind))
        change.event(
            "decision",
            f"scope '{decision.scope}': {decision.reason}",
            subject=finding.subject,
            scope=str(decision.scope),
            restarts=sorted(recovery.names) + ["trainer"] * recovery.with_trainer,
        )
        if finding.subject in context.workloads and finding.kind is FindingKind.PROCESS_DIED:
            change.workload(finding.subject, state=WorkloadState.DEAD, detail=finding.message)
        if not is_restart:
            change.job(ending=EndingRecord(state=JobState.FAILED, why=finding.message))
            return
        new = RestartRecord(scope=decision.scope, subject=finding.subject, node_id=node_id)
        change.job(
            restarts=(*record.restarts, new)[-_REMEMBERED:],
            epoch=record.epoch + recovery.is_back_to_commit,
            last_error=_error_key(finding.message) if finding.kind is FindingKind.USER_ERROR else record.last_error,
        )
        if decision.scope is FailoverScope.JOB and record.state is JobState.RUNNING:
            change.job(state=JobState.STARTING)
        for name in recovery.names:
            old = context.workloads[name]
            change.workload(
                name,
                state=WorkloadState.STARTING,
                incarnation=old.incarnation + 1,
                restarts=old.restarts + 1,
                actor_id=None,
                pid=None,
            )
        if recovery.with_trainer:
            change.trainer(state="starting", incarnation=record.trainer.incarnation + 1, pid=None, actor_id=None)
