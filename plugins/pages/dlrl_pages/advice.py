"""The nearest changes with which a job that does not fit would fit.

They are found by planning the changed job, or the job on the changed cluster.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlrl_core.plan.cluster_view import ClusterView
from dlrl_core.plan.problem import STEPS, Problem, Stuck, amount_of, needed_steps
from dlrl_core.plan.search import fits
from dlrl_core.plan.shortage import Imagine, Misfit
from dlrl_core.spec import JobSpec, RoleSpec

_MOST_CHECKS = 60
_MOST_WORK = 100_000
"""Checks times nodes and units, so that the error does not take longer than a plan."""
_PATIENCE = 1_000
_MOST_NODES_MORE = 64

Changed = tuple[JobSpec, ClusterView]
_RoleText = Callable[[str, Any], str]


@dataclass(frozen=True, kw_only=True)
class _Family:
    """One kind of change, from the smallest to the largest; a larger one fits whenever a smaller one does."""

    values: Sequence[Any]
    change: Callable[[Any], Changed]
    text: Callable[[Any], str]


def changes_that_fit(misfit: Misfit) -> Iterator[str]:
    """Changes with which the job would fit, the most likely first, each the smallest of its kind."""
    problem = misfit.problem
    checks = _Checks(min(_MOST_CHECKS, _MOST_WORK // (len(problem.nodes) + sum(problem.wanted))))
    for families in _Changes(problem, misfit.stuck, misfit.imagine).alternatives():
        smallest = next(filter(None, map(checks.smallest, families)), None)
        if smallest is not None:
            yield smallest


class _Checks:
    def __init__(self, left: int) -> None:
        self._left = left

    def smallest(self, family: _Family) -> str | None:
        """The smallest change of the family that fits, in words; None if there is none, or no time to find it."""
        values = family.values
        if not values or not self._fits(family.change(values[-1])):
            return None
        smallest = bisect.bisect_left(values, True, hi=len(values) - 1, key=lambda one: self._fits(family.change(one)))
        return family.text(values[smallest]) if self._left >= 0 else None

    def _fits(self, changed: Changed) -> bool:
        self._left -= 1
        return self._left >= 0 and fits(Problem(*changed, patience=_PATIENCE))


class _Changes:
    """What could be changed, the most likely first."""

    def __init__(self, problem: Problem, stuck: Stuck, imagine: Imagine | None) -> None:
        self._problem = problem
        self._stuck = stuck
        self._spec = problem.spec
        self._cluster = ClusterView(nodes=problem.nodes)
        self._imagine = imagine

    def alternatives(self) -> Iterator[tuple[_Family, ...]]:
        """Kinds of changes; of each tuple, the first that fits is enough."""
        yield from ((family,) for family in self._of_job())
        if self._imagine is None and self._cluster.nodes:
            yield self._more_nodes(is_larger_job=False), self._more_nodes(is_larger_job=True)

    def _of_job(self) -> Iterator[_Family]:
        spec = self._spec
        needs = zip(self._problem.groups, self._problem.needs, strict=True)
        devices = sum(group.units * need[0] for group, need in needs) // STEPS
        most_nodes, most_devices = spec.node_num + max(8, devices), devices
        if self._imagine is None:
            most_nodes = len(self._cluster.nodes) - spec.spare_nodes
            free = [node.free.get(spec.device_type, 0) for node in self._cluster.nodes]
            most_devices = int(min(max(free, default=0), devices))
        yield self._field("node_num", range(spec.node_num + 1, most_nodes + 1))
        yield self._field("device_per_node", range(spec.device_per_node + 1, most_devices + 1))
        yield self._field("spare_nodes", range(spec.spare_nodes - 1, -1, -1))
        if self._stuck.group is not None:
            yield from self._of_roles(self._stuck.group)

    def _changed(self, spec: JobSpec) -> Changed:
        return spec, self._cluster if self._imagine is None else self._imagine(spec)

    def _field(self, name: str, values: Sequence[Any], text: str = "") -> _Family:
        """Changes of one field of the job; `text` where its value does not tell what changes."""
        return _Family(
            values=values,
            change=lambda value: self._changed(self._spec.model_copy(update={name: value})),
            text=lambda value: text or f"{name}={value}",
        )

    def _of_roles(self, group: int) -> Iterator[_Family]:
        """Changes of the roles that do not fit."""
        demand = self._problem.groups[group]
        sizes = {m.name: devices.seats_per_unit for devices in demand.groups for m in devices.members}
        is_elastic = any(self._spec.placement_requests[name].min_total is not None for name in sizes)
        count = "min_total" if is_elastic else "total"
        yield self._roles(
            list(sizes),
            values=range(demand.min_units - demand.step, 0, -demand.step),
            update=lambda name, units: {count: units * sizes[name]},
            text=lambda name, units: f"{count}={units * sizes[name]} for '{name}'",
        )
        for field, is_set in (
            ("per_node", demand.units_per_node is not None),
            ("pack_into", bool(demand.pack_into)),
            ("spread_over", bool(demand.spread_over)),
            ("node_labels", bool(demand.labels)),
        ):
            if is_set:
                yield self._without(field, list(sizes))
        if demand.foes:
            yield self._without_separation(set(sizes))
        if self._spec.device_type != "CPU" and self._imagine is None:
            yield self._fewer_cpus(list(sizes))

    def _roles(
        self, names: list[str], values: Sequence[Any], update: Callable[[str, Any], dict[str, Any]], text: _RoleText
    ) -> _Family:
        """Changes of several roles at once."""
        return _Family(
            values=values,
            change=lambda value: self._changed(_with_roles(self._spec, {name: update(name, value) for name in names})),
            text=lambda value: " and ".join(text(name, value) for name in names),
        )

    def _without(self, field: str, names: list[str]) -> _Family:
        nothing: Any = {} if field == "node_labels" else None
        begin = f"no {field} for "
        return self._roles(
            names, [nothing], lambda _, value: {field: value}, lambda name, _: f"{begin * (name == names[0])}'{name}'"
        )

    def _without_separation(self, names: set[str]) -> _Family:
        owners = names | {name.partition(".")[0] for name in names}
        kept = tuple(group for group in self._spec.without_collocation if not owners.intersection(group))
        dropped = [" and ".join(f"'{n}'" for n in one) for one in self._spec.without_collocation if one not in kept]
        return self._field("without_collocation", [kept], f"no separation of {', nor of '.join(dropped)}")

    def _fewer_cpus(self, names: list[str]) -> _Family:
        resources = {name: self._spec.placement_requests[name].resource for name in names}
        asked = {name: one.get("CPU", 1.0) for name, one in resources.items() if one.get("CPU", 1.0)}

        def less(name: str, tenths: int) -> float:
            return amount_of(needed_steps(asked[name] * tenths / 10))

        return self._roles(
            list(asked),
            values=range(9, -1, -1) if asked else (),
            update=lambda name, tenths: {"resource": {**resources[name], "CPU": less(name, tenths)}},
            text=lambda name, tenths: f"CPU={less(name, tenths):g} for '{name}'",
        )

    def _more_nodes(self, *, is_larger_job: bool) -> _Family:
        """More nodes like the one with the most devices; a larger job may use them all."""
        spec, stuck, problem = self._spec, self._stuck, self._problem
        nodes = [] if stuck.group is None else [problem.nodes[node] for node in problem.eligible[stuck.group]]
        model = max(nodes or problem.nodes, key=lambda node: node.free.get(spec.device_type, 0))

        def node_num(count: int) -> int:
            usable = len(problem.nodes) + count - spec.spare_nodes
            return max(spec.node_num, min(spec.node_num + count, usable)) if is_larger_job else spec.node_num

        def changed(count: int) -> Changed:
            nodes = (*problem.nodes, *(model,) * count)
            return spec.model_copy(update={"node_num": node_num(count)}), ClusterView(nodes=nodes)

        def text(count: int) -> str:
            more = f"{count} more node{'s' if count > 1 else ''} like {model.shown}"
            return f"node_num={node_num(count)} and {more}" if is_larger_job else more

        return _Family(values=range(1, _MOST_NODES_MORE + 1), change=changed, text=text)


def _with_roles(spec: JobSpec, updates: dict[str, dict[str, Any]]) -> JobSpec:
    return spec.model_copy(update={"roles": tuple(_with_updates(role, updates) for role in spec.roles)})


def _with_updates(role: RoleSpec, updates: dict[str, dict[str, Any]]) -> RoleSpec:
    """The role with some fields changed. If a part is changed, options of the role are written into its parts."""
    if not role.parts:
        return role.model_copy(update=updates.get(role.role.value, {}))
    if not role.placement_requests.keys() & updates.keys():
        return role
    parts = tuple(part.model_copy(update=updates.get(name, {})) for name, part in role.placement_requests.items())
    said: dict[str, Any] = {"per_node": None, "resource": {}, "node_labels": {}, "spread_over": None, "pack_into": None}
    return role.model_copy(update={**said, "parts": parts, "total": sum(part.total for part in parts)})
