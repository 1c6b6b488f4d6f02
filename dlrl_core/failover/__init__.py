"""Policies: findings in, a decision out. They decide and never act."""

from dlrl_core.failover.decision import FailoverDecision, FailoverScope
from dlrl_core.failover.outlook import deaths_of, declared_scopes
from dlrl_core.failover.policy import EscalatingPolicy, FailoverPolicy, PastRestart, Situation, role_of

__all__ = [
    "EscalatingPolicy",
    "FailoverDecision",
    "FailoverPolicy",
    "FailoverScope",
    "PastRestart",
    "Situation",
    "deaths_of",
    "declared_scopes",
    "role_of",
]
