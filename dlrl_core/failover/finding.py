"""What the control loop sees (observations), what each of them means (findings), and the detectors of ours.

A detector is a pure function from one look at a job to what is wrong in it; plugins add more by a hook. It decides
nothing and touches nothing: the control loop takes what it finds as an observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlrl_core.context.job_state import TrainerOutcome
from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.context.records import FindingKind, TrainerRecord, TrainerState, WorkloadRecord
from dlrl_core.errors import ErrorIdentity, RemoteCause
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.spec import JobSpec, RoleSpec


@dataclass(frozen=True, kw_only=True)
class WorkloadGone:
    """The pending call on a workload failed: its process, or its node, is gone."""

    name: str
    reason: str
    call: str | None = None
    """The method that ran on it, if the trainer waited for one."""
    actor_id: str = ""
    """Of the process that is gone: by the time this is handled, another one may have replaced it."""


@dataclass(frozen=True, kw_only=True)
class WorkloadHangs:
    """A detector judged that the process of a workload, or the trainer's, lives and does not get on."""

    name: str
    """Of the workload, or 'trainer'."""
    reason: str
    actor_id: str
    """Of the process that was judged."""
    is_silent: bool = False
    """Nothing was heard of it, which may have other reasons: the Master looks whether it is frozen before it acts."""


@dataclass(frozen=True, kw_only=True)
class TrainerGone:
    """The pending call on the trainer failed: its process, or its node, is gone."""

    reason: str
    incarnation: int
    """Of the process that is gone."""


@dataclass(frozen=True, kw_only=True)
class MasterFailed:
    """What the Master did raised an error that need not come again."""

    name: str
    """The workload or trainer that it was to start again; 'master' for an error that it does not know."""
    reason: str
    cause: RemoteCause | None = None


@dataclass(frozen=True, kw_only=True)
class CallLost:
    """A call that must not be repeated was interrupted by a death."""

    name: str
    method: str


Observation = WorkloadGone | WorkloadHangs | TrainerGone | TrainerOutcome | MasterFailed | CallLost


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, in one sentence."""

    kind: FindingKind
    subject: str
    """The workload's name, 'trainer' or 'master'."""
    message: str
    step: int | None = None
    error: ErrorIdentity | None = None
    """Of an error of user code."""
    cause: RemoteCause | None = None


def finding_of(seen: Observation, step: int | None) -> Finding:
    """What the observation means; `step` is the one that runs, counted from 1."""
    at = "" if step is None else f" at step {step}"
    match seen:
        case WorkloadGone():
            during = f" during '{seen.call}'" if seen.call else " between calls"
            message = f"workload '{seen.name}' died{during}{at}: {seen.reason}"
            return Finding(kind=FindingKind.PROCESS_DIED, subject=seen.name, message=message, step=step)
        case WorkloadHangs():
            who = "the trainer" if seen.name == TRAINER else f"workload '{seen.name}'"
            message = f"{who} hangs{at}: {seen.reason}"
            return Finding(kind=FindingKind.HUNG, subject=seen.name, message=message, step=step)
        case TrainerGone():
            message = f"the trainer's process died{at}: {seen.reason}"
            return Finding(kind=FindingKind.PROCESS_DIED, subject=TRAINER, message=message, step=step)
        case MasterFailed():
            kind, what = FindingKind.START_FAILED, f"'{seen.name}' could not be started again"
            if seen.name == MASTER:
                kind, what = FindingKind.MASTER_FAILED, "the master failed"
            return Finding(kind=kind, subject=seen.name, message=f"{what}{at}: {seen.reason}", step=step)
        case CallLost():
            message = f"'{seen.method}' of workload '{seen.name}' was interrupted{at} and must not be repeated"
            return Finding(kind=FindingKind.CALL_LOST, subject=seen.name, message=message, step=step)
        case TrainerOutcome():
            return Finding(
                kind=_kind_of(seen),
                subject=seen.failed_workload or TRAINER,
                message=f"{seen.why or 'the trainer failed'}{at}",
                step=step,
                error=seen.error_identity,
                cause=seen.cause,
            )


def _kind_of(outcome: TrainerOutcome) -> FindingKind:
    if outcome.is_commit_lost:
        return FindingKind.COMMIT_LOST
    return FindingKind.PROCESS_DIED if outcome.is_death else FindingKind.USER_ERROR


_LOOK_S = 3.0
"""What a look at a silent process takes at most, of the `silence_limit` of its role; not more than half of that."""
_SILENT = "it sent no report for {:.0f} s"


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """A job at one moment, as its Master knows it. Times are seconds by the Master's monotonic clock."""

    now: float
    since: float
    """From when on reports can be expected: this Master began, something was restarted, or it was stopped itself."""
    spec: JobSpec
    workloads: Mapping[str, WorkloadRecord]
    trainer: TrainerRecord
    reports: Mapping[str, ProcessReport]
    """The last report of each workload that sent one."""
    heard: Mapping[str, float]
    """When that report came; under 'trainer', when the trainer reported its progress."""


def find_hangs(look: JobLook) -> Iterator[WorkloadHangs]:
    """Calls that run longer than the `hang_limit` of their role, and processes that send no reports.

    Processes that are being started are not judged. The trainer may be silent for as long as any role.
    """
    roles = {role.role: role for role in look.spec.roles}
    for record in look.workloads.values():
        if record.state is WorkloadState.READY and record.actor_id is not None:
            yield from _hang(record, record.actor_id, roles[record.role], look)
    if look.trainer.state is TrainerState.RUNNING and look.trainer.actor_id is not None:
        silent_s = look.now - max(look.since, look.heard.get(TRAINER, look.since))
        if silent_s > max(map(_suspect_s, look.spec.roles)):
            reason = _SILENT.format(silent_s)
            yield WorkloadHangs(name=TRAINER, reason=reason, actor_id=look.trainer.actor_id, is_silent=True)


def _suspect_s(role: RoleSpec) -> float:
    return max(role.silence_limit - _LOOK_S, role.silence_limit / 2)


def _hang(record: WorkloadRecord, actor_id: str, role: RoleSpec, look: JobLook) -> Iterator[WorkloadHangs]:
    report, heard_at = look.reports.get(record.name), look.since
    if report is not None and (report.pid, report.incarnation) == (record.pid, record.incarnation):
        heard_at = max(heard_at, look.heard[record.name])
    else:
        report = None
    silent_s, limit_s = look.now - heard_at, role.hang_limit
    is_silent = silent_s > _suspect_s(role)
    if report and report.call is not None and limit_s is not None:
        seconds = (report.call_s or 0.0) + (silent_s if is_silent else 0.0)  # it may have ended since the report
        if seconds > limit_s:
            reason = f"its call '{report.call}' has run for {seconds:.0f} s (limit {limit_s:g} s)"
            yield WorkloadHangs(name=record.name, reason=reason, actor_id=actor_id)
            return
    if is_silent:
        is_sure = limit_s is not None and silent_s > max(limit_s, role.silence_limit)
        reason = _SILENT.format(silent_s)
        yield WorkloadHangs(name=record.name, reason=reason, actor_id=actor_id, is_silent=not is_sure)
