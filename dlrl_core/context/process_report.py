"""ProcessReport: what a process of a job says about itself, asked for or pushed to the Master.

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
class ProcessReport:
    """One process, of a workload or the trainer, at one moment.

    A report with an older incarnation than the record's comes from a process that was replaced.
    """

    name: str
    """Of the workload, such as 'actor-0', or 'trainer'."""
    run_id: str
    incarnation: int
    """How often the workload or trainer was restarted before this process."""
    node_id: str
    address: str
    pid: int
    started: int = 0
    """When the process started, in the kernel's ticks since it booted: its number may be given out again later."""
    actor_id: str
    device_ids: tuple[str, ...] = ()
    offered_port: int | None = None
    """Of rank 0: a free port where the processes of its role can meet."""
    state: WorkloadState
    call: str | None = None
    """The method that runs now; None while it waits for one."""
    call_s: float | None = None
    """How long it has run."""
    calls_done: int = 0
    """Calls finished by this process."""
    memory_bytes: int
    """Resident memory of the process."""
    sent_at: float
    """Seconds since the epoch, by the clock of the process's node; to be shown, not compared with other clocks."""
