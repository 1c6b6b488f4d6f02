"""The nearest changes of a job, or of its cluster, with which it would fit: found by planning the changed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlrl_core.plan.cluster_view import ClusterView
from dlrl_core.plan.problem import Placement, Problem, Stuck
from dlrl_core.plan.solve import solve
from dlrl_core.spec import JobSpec, RoleSpec

_MOST_CHECKS = 60
_MOST_WORK = 100_000
"""Checks times nodes and units: an error must not take longer than a plan."""
_PATIENCE = 2_000
_SHOWN = 2

Changed = tuple[JobSpec, ClusterView]


@dataclass(frozen=True, kw_only=True)
class _Family:
    """One kind of change, from the smallest to the largest; a larger one fits whenever a smaller one does."""

    values: Sequence[Any]
    change: Callable[[Any], Changed]
    text: Callable[[Any], str]


def changes_that_fit(problem: Problem, stuck: Stuck, *, is_described: bool) -> list[str]:
    """Up to two of them, each the smallest of its kind."""
    size = len(problem.nodes) + sum(problem.wanted)
    checks = _Checks(min(_MOST_CHECKS, _MOST_WORK // size))
    found = []
    for family in _families(problem, stuck, is_described):
        smallest = checks.smallest(family)
        if smallest is not None:
            found.append(smallest)
        if len(found) == _SHOWN:
            break
    return found


class _Checks:
    def __init__(self, left: int) -> None:
        self._left = left

    def smallest(self, family: _Family) -> str | None:
        """The smallest change of the family that fits, in words."""
        values = family.values
        if not values or not self._fits(family.change(values[-1])):
            return None
        low, high = 0, len(values) - 1
        while low < high:
            middle = (low + high) // 2
            if self._fits(family.change(values[middle])):
                high = middle
            else:
                low = middle + 1
        return family.text(values[high])

    def _fits(self, changed: Changed) -> bool:
        self._left -= 1
        if self._left < 0:
            return False
        return isinstance(solve(Problem(*changed, patience=_PATIENCE)), Placement)


def _families(problem: Problem, stuck: Stuck, is_described: bool) -> Iterator[_Family]:
    spec, cluster = problem.spec, ClusterView(nodes=problem.nodes)

    def field(name: str, values: Sequence[int]) -> _Family:
        return _Family(
            values=values,
            change=lambda value: _grown(spec.model_copy(update={name: value}), cluster, is_described),
            text=lambda value: f"{name}={value}",
        )

    devices = sum(group.units * need[0] for group, need in zip(problem.groups, problem.needs, strict=True)) // 10_000
    most_nodes = len(cluster.nodes) - spec.spare_nodes if is_described else spec.node_num + max(8, devices)
    most_devices = max((int(min(node.free.get(spec.device_type, 0), devices)) for node in cluster.nodes), default=0)
    yield field("node_num", range(spec.node_num + 1, most_nodes + 1))
    yield field("device_per_node", range(spec.device_per_node + 1, (most_devices if is_described else devices) + 1))
    yield field("spare_nodes", range(spec.spare_nodes - 1, -1, -1))
    if stuck.group is not None:
        yield from _role_families(problem, stuck.group, cluster)
    if is_described and cluster.nodes:
        yield _more_nodes(problem, stuck, cluster)


def _role_families(problem: Problem, group: int, cluster: ClusterView) -> Iterator[_Family]:
    """Changes of the roles that found no place."""
    demand, spec = problem.groups[group], problem.spec
    names = [member.name for devices in demand.groups for member in devices.members]
    sizes = {m.name: devices.seats_per_unit for devices in demand.groups for m in devices.members}

    def changed(update: Callable[[str], dict[str, Any]]) -> Changed:
        return _with_roles(spec, {name: update(name) for name in names}), cluster

    def counts(units: int) -> str:
        return " and ".join(f"total={units * sizes[name]} for '{name}'" for name in names)

    yield _Family(
        values=range(demand.min_units - demand.step, 0, -demand.step),
        change=lambda units: changed(lambda name: {"total": units * sizes[name], "min_total": None}),
        text=counts,
    )
    for field, is_set in (
        ("per_node", demand.units_per_node is not None),
        ("pack_into", bool(demand.pack_into)),
        ("spread_over", bool(demand.spread_over)),
        ("node_labels", bool(demand.labels)),
    ):
        nothing: Any = {} if field == "node_labels" else None
        if is_set:
            yield _Family(
                values=[nothing],
                change=lambda value, field=field: changed(lambda _: {field: value}),  # type: ignore[misc]
                text=lambda _, field=field: f"no {field} for {' and '.join(repr(n) for n in names)}",  # type: ignore[misc]
            )
    if spec.device_type != "CPU":
        cpus = {name: spec.seatings[name].resource.get("CPU", 1.0) for name in names}
        yield _Family(
            values=range(9, -1, -1),
            change=lambda tenths: changed(
                lambda name: {"resource": {**spec.seatings[name].resource, "CPU": cpus[name] * tenths / 10}}
            ),
            text=lambda tenths: " and ".join(f"CPU={cpus[name] * tenths / 10:g} for '{name}'" for name in names),
        )


def _more_nodes(problem: Problem, stuck: Stuck, cluster: ClusterView) -> _Family:
    """More nodes like the one with the most devices; the job then may use them."""
    spec = problem.spec
    nodes = cluster.nodes if stuck.group is None else [problem.nodes[n] for n in problem.eligible[stuck.group]]
    model = max(nodes or cluster.nodes, key=lambda node: node.free.get(spec.device_type, 0))

    def grown(count: int) -> Changed:
        more = ClusterView(nodes=(*cluster.nodes, *(model,) * count))
        return spec.model_copy(update={"node_num": max(spec.node_num, len(more.nodes) - spec.spare_nodes)}), more

    return _Family(
        values=range(1, 65),
        change=grown,
        text=lambda count: f"{count} more node{'s' if count > 1 else ''} like {model.shown}",
    )


def _grown(spec: JobSpec, cluster: ClusterView, is_described: bool) -> Changed:
    """Without a cluster, the nodes that a job of this shape would get."""
    if is_described or not cluster.nodes:
        return spec, cluster
    free = {**cluster.nodes[0].free, spec.device_type: spec.device_per_node}
    return spec, ClusterView.described(node_num=spec.node_num + spec.spare_nodes, resources=free)


def _with_roles(spec: JobSpec, updates: dict[str, dict[str, Any]]) -> JobSpec:
    return spec.model_copy(update={"roles": tuple(_with_updates(role, updates) for role in spec.roles)})


def _with_updates(role: RoleSpec, updates: dict[str, dict[str, Any]]) -> RoleSpec:
    if not role.parts:
        return role.model_copy(update=updates.get(role.role.value, {}))
    parts = tuple(part.model_copy(update=updates.get(f"{role.role.value}.{part.name}", {})) for part in role.parts)
    return role.model_copy(update={"parts": parts})
