"""CommitsReport: how the commits of a job go. Written by the trainer, kept in the record, shown by `dlrl status`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CommitsReport:
    """The commits of a job at one moment."""

    pace: str
    """How often steps are committed, and why, in one sentence."""
    steps_at_risk: int
    """How many steps a death would cost at most."""
    size: int = 0
    """Bytes of the largest rank's state."""
    trouble: str | None = None
    """Why the last commit does not count, or which one was lost; None if all is well."""
    lost_step: int | None = None
    """The last step, counted from 1, whose commit counted and was lost: training went on after an older one."""
    nodes: int = 1
    """In the memory of how many nodes the last commit is."""
    neighbour_trouble: str | None = None
    """Why another node has no copy of it, where it should; None if it has."""
    durable_step: int | None = None
    """The newest step that all ranks have on durable storage, counted from 1."""
    durable_at: float | None = None
    """When that became known, in seconds since the epoch."""
    is_copying: bool = False
    """Another one is being copied there."""
    durable_trouble: str | None = None
    """Why the last copy there failed; None after one that succeeded."""
