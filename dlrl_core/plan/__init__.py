"""Who sits where: the placement of a job on a cluster, as values, before anything starts."""

from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.execution_plan import Bundle, ExecutionPlan, WorkloadPlan
from dlrl_core.plan.planner import make_plan
from dlrl_core.plan.smallest_cluster import needed_cluster

__all__ = [
    "Bundle",
    "ClusterView",
    "ExecutionPlan",
    "NodeView",
    "WorkloadPlan",
    "make_plan",
    "needed_cluster",
]
