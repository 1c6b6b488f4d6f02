"""What the control loop sees (observations), and what each of them means (findings)."""

from __future__ import annotations

from dataclasses import dataclass

from dlrl_core.context.records import FindingKind
from dlrl_core.context.trainer_outcome import TrainerOutcome
from dlrl_core.errors import ErrorIdentity, RemoteCause

TRAINER = "trainer"


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
                kind=FindingKind.PROCESS_DIED if seen.is_death else FindingKind.USER_ERROR,
                subject=seen.failed_workload or TRAINER,
                message=f"{seen.why or 'the trainer failed'}{at}",
                step=step,
                error=seen.error_identity,
                cause=seen.cause,
            )
