"""Detectors: what the Master sees goes in, findings come out. They decide nothing and touch nothing."""

from dlrl_core.diagnosis.detectors import diagnose
from dlrl_core.diagnosis.finding import (
    CallLost,
    Finding,
    FindingKind,
    Observation,
    TrainerGone,
    TrainerRaised,
    WorkloadGone,
)

__all__ = [
    "CallLost",
    "Finding",
    "FindingKind",
    "Observation",
    "TrainerGone",
    "TrainerRaised",
    "WorkloadGone",
    "diagnose",
]
