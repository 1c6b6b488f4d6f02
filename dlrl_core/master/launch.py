"""What a driver hands to the Master."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class MasterLimits:
    """How long the Master waits for what it can't do itself."""

    reserve_s: float = 60.0
    process_s: float = 300.0
    construct_s: float = 3600.0
    """Constructors may load large models."""
    linger_s: float = 10.0
    """How long an ended Master stays for drivers that still want to know."""
    last_writes_s: float = 30.0
    """How long the end of the job waits for a store that does not answer; then the driver is told what is lost."""


@dataclass(frozen=True, kw_only=True)
class MasterLaunch:
    """Everything a Master starts from. A restarted Master gets the same, and reads the rest from the store."""

    job: str
    run_id: str
    spec_json: str = field(repr=False)
    plan_json: str | None
    """None if the cluster had no room when it was submitted: the Master waits for it."""
    store_url: str = field(repr=False)
    python_path: tuple[str, ...]
    plugins: str | None
    reservation: Any
    """What was asked for with that plan (scheduler.reservation.Reservation); None without one."""
    state_keeper: str
    """The import path of the class that keeps committed state (workload.state_keeper.StateKeeper)."""
    durable_folder: str | None = None
    """The durable storage of this run's commits: a folder, or a URL."""
    limits: MasterLimits = MasterLimits()
