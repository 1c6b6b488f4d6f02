"""From an observation to a finding."""

from __future__ import annotations

from dlrl_core.diagnosis.finding import (
    CallLost,
    Finding,
    FindingKind,
    Observation,
    TrainerGone,
    TrainerRaised,
    WorkloadGone,
)


def diagnose(seen: Observation) -> Finding:
    """What the observation means."""
    match seen:
        case WorkloadGone():
            during = f" during '{seen.call}'" if seen.call else " between calls"
            return Finding(
                kind=FindingKind.PROCESS_DIED,
                subject=seen.name,
                message=f"workload '{seen.name}' died{during}{_at(seen.step)}: {seen.reason}",
            )
        case TrainerGone():
            return Finding(
                kind=FindingKind.PROCESS_DIED,
                subject="trainer",
                message=f"the trainer's process died{_at(seen.step)}: {seen.reason}",
            )
        case CallLost():
            return Finding(
                kind=FindingKind.CALL_LOST,
                subject=seen.name,
                message=f"'{seen.method}' of workload '{seen.name}' was interrupted{_at(seen.step)} "
                "and must not be made again",
            )
        case TrainerRaised():
            return Finding(
                kind=FindingKind.PROCESS_DIED if seen.is_death else FindingKind.USER_ERROR,
                subject=seen.failed_workload or "trainer",
                message=f"{seen.why}{_at(seen.step)}",
                cause=seen.cause,
            )


def _at(step: int | None) -> str:
    return "" if step is None else f" at step {step}"
