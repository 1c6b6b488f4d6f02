"""What Ray says of the cluster: its nodes, and what of ours is on it."""

from __future__ import annotations

from collections.abc import Mapping

import ray
from ray.util.placement_group import placement_group_table

from dlrl_core.plan import ClusterView, NodeView
from dlrl_core.scheduler.names import job_of_namespace, job_of_reservation


def view_cluster() -> ClusterView:
    """All living nodes with what is free on them now, ordered by id."""
    free = ray._private.state.available_resources_per_node()
    return _view({node["NodeID"]: dict(free.get(node["NodeID"], {})) for node in ray.nodes()})


def view_capacity() -> ClusterView:
    """All living nodes as if no job held anything of them."""
    return _view({node["NodeID"]: dict(node["Resources"]) for node in ray.nodes()})


def _view(resources: Mapping[str, Mapping[str, float]]) -> ClusterView:
    nodes = [
        NodeView(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            free=resources[node["NodeID"]],
            labels=dict(node.get("Labels") or {}),
        )
        for node in ray.nodes()
        if node["Alive"] and resources.get(node["NodeID"])
    ]
    return ClusterView(nodes=tuple(sorted(nodes, key=lambda node: node.node_id)))


def living_actors() -> dict[str, list[str]]:
    """Names of the living named actors of each job."""
    found: dict[str, list[str]] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        job = job_of_namespace(actor["namespace"])
        if job is not None:
            found.setdefault(job, []).append(actor["name"])
    return {job: sorted(names) for job, names in sorted(found.items())}


def standing_reservations() -> dict[str, str]:
    """State of the placement group of each job that has one."""
    found = {}
    for group in placement_group_table().values():
        job = job_of_reservation(group["name"])
        if job is not None and group["state"] != "REMOVED":
            found[job] = group["state"]
    return found
