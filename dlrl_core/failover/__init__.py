"""Policies: findings in, a decision out. They decide and never act."""

from dlrl_core.failover.decision import FailoverDecision, FailoverScope
from dlrl_core.failover.outlook import deaths_of
from dlrl_core.failover.policy import FailoverPolicy, StopPolicy

__all__ = ["FailoverDecision", "FailoverPolicy", "FailoverScope", "StopPolicy", "deaths_of"]
