"""Placement: which workload is placed on which node and device, as plain values, before anything starts."""

from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.execution_plan import Bundle, ExecutionPlan, WorkloadPlan
from dlrl_core.plan.planner import make_plan, needed_cluster

__all__ = [
    "Bundle",
    "ClusterView",
    "ExecutionPlan",
    "NodeView",
    "WorkloadPlan",
    "make_plan",
    "needed_cluster",
]
