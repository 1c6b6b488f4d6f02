"""The cyclic graph of a job: which role's calls follow which, and where results go."""

from dlrl_core.graph.role_graph import EdgeKind, RoleGraph, downstream

__all__ = ["EdgeKind", "RoleGraph", "downstream"]
