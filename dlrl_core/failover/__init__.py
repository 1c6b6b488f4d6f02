"""From what the Master sees to what it restarts: observation, finding, decision, recovery. Pure functions."""

from dlrl_core.failover.finding import (
    CallLost,
    Finding,
    MasterFailed,
    Observation,
    TrainerGone,
    WorkloadGone,
    WorkloadHangs,
    finding_of,
)
from dlrl_core.failover.policy import (
    FailoverDecision,
    Recovery,
    Situation,
    deaths_of,
    decide,
    declared_scopes,
    incident_of,
    plan_recovery,
    role_of,
)

__all__ = [
    "CallLost",
    "FailoverDecision",
    "Finding",
    "MasterFailed",
    "Observation",
    "Recovery",
    "Situation",
    "TrainerGone",
    "WorkloadGone",
    "WorkloadHangs",
    "deaths_of",
    "decide",
    "declared_scopes",
    "finding_of",
    "incident_of",
    "plan_recovery",
    "role_of",
]
