"""What the control loop sees (observations), what each of them means (findings), and the detectors of ours.

A detector is a pure function from one look at a job to what is wrong in it; plugins add more by a hook. It decides
nothing and touches nothing: the control loop takes what it finds as an observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.context.records import FindingKind, WorkloadRecord
from dlrl_core.context.trainer_outcome import TrainerOutcome
from dlrl_core.errors import ErrorIdentity, RemoteCause
from dlrl_core.roles import TRAINER
from dlrl_core.spec import JobSpec


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
    """A detector judged that a workload's process lives and does not get on."""

    name: str
    reason: str
    actor_id: str
    """Of the process that was judged."""


@dataclass(frozen=True, kw_only=True)
class TrainerGone:
    """The pending call on the trainer failed: its process, or its node, is gone."""

    reason: str
    incarnation: int
    """Of the process that is gone."""


@dataclass(frozen=True, kw_only=True)
class CallLost:
    """A call that must not be repeated was interrupted by a death."""

    name: str
    method: str


Observation = WorkloadGone | WorkloadHangs | TrainerGone | TrainerOutcome | CallLost


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, in one sentence."""

    kind: FindingKind
    subject: str
    """The workload's name, or 'trainer'."""
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
            message = f"workload '{seen.name}' hangs{at}: {seen.reason}"
            return Finding(kind=FindingKind.HUNG, subject=seen.name, message=message, step=step)
        case TrainerGone():
            message = f"the trainer's process died{at}: {seen.reason}"
            return Finding(kind=FindingKind.PROCESS_DIED, subject=TRAINER, message=message, step=step)
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


_SILENCE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """A job at one moment, as its Master knows it. Times are seconds since the epoch."""

    now: float
    since: float
    """When this Master began to receive reports."""
    spec: JobSpec
    workloads: Mapping[str, WorkloadRecord]
    reports: Mapping[str, ProcessReport]
    """The last report of each workload that sent one."""


def find_hangs(look: JobLook) -> Iterator[WorkloadHangs]:
    """Calls that run longer than the `hang_limit` of their role, and processes that send no reports.

    Roles without a limit are not judged, nor are processes that are being started.
    """
    limits = {role.role: role.hang_limit for role in look.spec.roles if role.hang_limit is not None}
    for record in look.workloads.values():
        limit_s = limits.get(record.role)
        if limit_s is None or record.state is not WorkloadState.READY or record.actor_id is None:
            continue
        reason = _hang(record, look.reports.get(record.name), look, limit_s)
        if reason is not None:
            yield WorkloadHangs(name=record.name, reason=reason, actor_id=record.actor_id)


def _hang(record: WorkloadRecord, report: ProcessReport | None, look: JobLook, limit_s: float) -> str | None:
    if report is None or report.pid != record.pid or report.incarnation != record.incarnation:
        report, heard_at = None, max(record.since, look.since)
    else:
        heard_at = report.sent_at
    if report and report.call is not None and report.call_since is not None:
        seconds = look.now - report.call_since
        if seconds > limit_s:
            return f"its call '{report.call}' has run for {seconds:.0f} s (limit {limit_s:g} s)"
    silence_s = max(_SILENCE_S, limit_s)
    if look.now - heard_at > silence_s:
        return f"it sent no report for {look.now - heard_at:.0f} s (limit {silence_s:g} s)"
    return None
