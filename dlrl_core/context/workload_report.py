"""WorkloadReport: what a workload says about itself, pushed to the Master.

Workloads import this module in their own process, so it needs nothing but the standard library.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class WorkloadState(enum.StrEnum):
    """Where one workload is in its life. A restart begins it again with the next incarnation."""

    PENDING = "pending"
    """Planned; no process was asked for yet."""
    STARTING = "starting"
    """The process was asked for; the user's class is being imported and constructed."""
    READY = "ready"
    """Answers calls."""
    DEAD = "dead"
    """The process is gone and was not meant to go."""
    ENDED = "ended"
    """The process was ended on purpose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadReport:
    """One workload at one moment. A report of an older incarnation is about a process that is no more."""

    name: str
    role: str
    """The value of the RoleType, such as 'actor'."""
    rank: int
    incarnation: int
    """Raised by one with each restart of the workload, from 0 on."""
    state: WorkloadState
    memory_bytes: int
    """Resident memory of the process."""
    node_id: str
    pid: int
    sent_at: float
    """Seconds since the epoch, by the clock of the workload's node."""
    call: str | None = None
    """The method that runs now; None while it waits for one."""
    call_since: float | None = None
    """When that call began, in seconds since the epoch by the same clock as `sent_at`."""
    calls_done: int = 0
    """Calls finished by this incarnation: if it grows, the workload lives and works."""
    step: int | None = None
    """The trainer's step that the latest call belonged to; None before the first."""

    def call_age_s(self) -> float | None:
        """How long the running call had lasted when this was sent; None if there was none."""
        return None if self.call_since is None else max(0.0, self.sent_at - self.call_since)
