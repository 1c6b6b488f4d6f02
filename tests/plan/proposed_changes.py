"""The changes that a PlanError proposes, read from its text and carried out."""

from __future__ import annotations

import re
from typing import Any

from dlrl_core.plan import ClusterView
from dlrl_core.spec import JobSpec, RoleSpec

Changed = tuple[JobSpec, ClusterView]


def proposals_of(text: str) -> list[str]:
    """What it would fit with; empty if the error names no such change."""
    _, _, proposals = text.partition("; it would fit with ")
    return proposals.split(", or with ") if proposals else []


def carried_out(proposal: str, spec: JobSpec, cluster: ClusterView) -> Changed:
    """The job and the cluster that a proposal describes; AssertionError if it is not understood."""
    if proposal.startswith("no separation of "):
        return _without_separations(proposal, spec), cluster
    if proposal.startswith("no "):
        field, _, names = proposal.removeprefix("no ").partition(" for ")
        nothing: Any = {} if field == "node_labels" else None
        return _with_roles(spec, {name: {field: nothing} for name in re.findall(r"'(.+?)'", names)}), cluster
    for item in proposal.split(" and "):
        spec, cluster = _with_item(item, spec, cluster)
    return spec, cluster


def _with_item(item: str, spec: JobSpec, cluster: ClusterView) -> Changed:
    if found := re.fullmatch(r"(node_num|device_per_node|spare_nodes)=(\d+)", item):
        return spec.model_copy(update={found[1]: int(found[2])}), cluster
    if found := re.fullmatch(r"(total|min_total)=(\d+) for '(.+)'", item):
        return _with_roles(spec, {found[3]: {found[1]: int(found[2])}}), cluster
    if found := re.fullmatch(r"CPU=([\d.]+) for '(.+)'", item):
        resource = {**spec.placement_requests[found[2]].resource, "CPU": float(found[1])}
        return _with_roles(spec, {found[2]: {"resource": resource}}), cluster
    found = re.fullmatch(r"(\d+) more nodes? like (.+)", item)
    assert found, item
    model = next(node for node in cluster.nodes if node.shown == found[2])
    more = [
        type(model)(node_id=f"more-{index}", free=model.free, labels=model.labels) for index in range(int(found[1]))
    ]
    return spec, ClusterView(nodes=(*cluster.nodes, *more))


def _without_separations(proposal: str, spec: JobSpec) -> JobSpec:
    dropped = [set(re.findall(r"'(.+?)'", names)) for names in proposal.split(", nor of ")]
    kept = tuple(group for group in spec.without_collocation if set(group) not in dropped)
    assert len(kept) < len(spec.without_collocation)
    return spec.model_copy(update={"without_collocation": kept})


def _with_roles(spec: JobSpec, updates: dict[str, dict[str, Any]]) -> JobSpec:
    def changed(role: RoleSpec) -> RoleSpec:
        parts = tuple(part.model_copy(update=updates.get(f"{role.role}.{part.name}", {})) for part in role.parts)
        update = {"parts": parts, "total": sum(part.total for part in parts)} if parts else {}
        return role.model_copy(update={**update, **updates.get(role.role.value, {})})

    return spec.model_copy(update={"roles": tuple(map(changed, spec.roles))})
