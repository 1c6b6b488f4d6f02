"""What the control loop sees (observations) and what it means (findings)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dlrl_core.errors import RemoteCause


@dataclass(frozen=True, kw_only=True)
class WorkloadGone:
    """The pending call on a workload failed: its process, or its node, is gone."""

    name: str
    reason: str
    call: str | None
    step: int | None
    actor_id: str = ""
    """Of the process that is gone: by the time it is looked at, another one may be there."""


@dataclass(frozen=True, kw_only=True)
class TrainerGone:
    """The pending call on the trainer failed: its process, or its node, is gone."""

    reason: str
    step: int | None
    incarnation: int = 0
    """Of the process that is gone: by the time it is looked at, another one may be there."""


@dataclass(frozen=True, kw_only=True)
class TrainerRaised:
    """User code in the trainer raised, or met an error of a workload."""

    why: str
    cause: RemoteCause | None
    failed_workload: str | None
    is_death: bool
    """What it met was the death of that workload."""
    step: int | None


@dataclass(frozen=True, kw_only=True)
class CallLost:
    """A call that must not be made again was interrupted by a death."""

    name: str
    method: str
    step: int | None


Observation = WorkloadGone | TrainerGone | TrainerRaised | CallLost


class FindingKind(enum.StrEnum):
    """What is wrong."""

    PROCESS_DIED = "process_died"
    USER_ERROR = "user_error"
    CALL_LOST = "call_lost"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, in one sentence."""

    kind: FindingKind
    subject: str
    """The workload's name, or 'trainer'."""
    message: str
    cause: RemoteCause | None = None
