"""Outcome: what happened to a job."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """What happened to a job."""

    WAITING = "waiting"
    """For resources, or for a node."""
    STARTING = "starting"
    RUNNING = "running"
    """Nothing was restarted so far."""
    RECOVERING = "recovering"
    """Something is being restarted."""
    RECOVERED = "recovered"
    """It runs, and something was restarted before."""
    DEGRADED = "degraded"
    """It runs, and its changes can't be written to the store."""
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
