"""Why a job does not fit: what it needs, what the cluster has, and the nearest changes with which it would fit.

The changes are found by planning the changed job, or the job on the changed cluster.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlrl_core.plan.cluster_view import ClusterView
from dlrl_core.plan.problem import STEPS, HostGroupDemand, Problem, Stuck, amount_of, needed_steps
from dlrl_core.plan.search import fits
from dlrl_core.spec import JobSpec, RoleSpec

_MOST_CHECKS = 60
_MOST_WORK = 100_000
"""Checks times nodes and units, so that the error does not take longer than a plan."""
_PATIENCE = 1_000
_SHOWN = 2
_MOST_NODES_MORE = 64

Changed = tuple[JobSpec, ClusterView]
_RoleText = Callable[[str, Any], str]
Imagine = Callable[[JobSpec], ClusterView]
"""The nodes that a job's own shape allows."""


def shortage(problem: Problem, stuck: Stuck, imagine: Imagine | None = None) -> str:
    """One sentence. `imagine`: there is no cluster, only the nodes that the job's own shape allows."""
    fits = changes_that_fit(problem, stuck, imagine)
    advice = f"it would fit with {', or with '.join(fits)}" if fits else _advice(problem, stuck, imagine)
    doubt = "" if stuck.is_certain else "no place was found, though not all ways were tried: "
    return f"{doubt}{_need(problem, stuck)}; {_have(problem, stuck, imagine)}; {advice}"


def _need(problem: Problem, stuck: Stuck) -> str:
    if stuck.group is None:
        return f"the job needs {_count(problem.spare_nodes, 'spare node')} that can replace any of its nodes"
    if stuck.resource is not None:
        return _need_together(problem, stuck.resource)
    others = _names_of(problem.groups[other] for other in stuck.others)
    return f"{_need_of_group(problem, stuck.group)}{f', beside {others}' if others else ''}"


def _need_together(problem: Problem, resource: int) -> str:
    """All roles that need the scarce resource, each with its sum."""
    sums = [group.min_units * need[resource] for group, need in zip(problem.groups, problem.needs, strict=True)]
    total = _shown_amount(amount_of(sum(sums)))
    each = ", ".join(
        f"{group.shown} {_shown_amount(amount_of(steps))}"
        for group, steps in zip(problem.groups, sums, strict=True)
        if steps
    )
    least = "at least " if any(group.min_units < group.units for group in problem.groups) else ""
    return f"the roles need {least}{total} {problem.resources[resource]} in all ({each})"


def _need_of_group(problem: Problem, group: int) -> str:
    demand = problem.groups[group]
    per_node = demand.units_per_node
    unlimited = [name for node in problem.nodes[:1] for name, amount in node.free.items() if math.isinf(amount)]
    amounts = [
        f"{_shown_amount(amount_of(steps * (per_node or 1)))} {name}"
        for name, steps in zip(problem.resources, problem.needs[group], strict=True)
        if steps and (name not in unlimited or not problem.needs[group][0])
    ]
    if per_node:
        each = " each" if demand.min_units > per_node else ""
        free = f" with {' and '.join(amounts)} free{each}" if amounts else ""
        wish = f"{_count(demand.min_units // per_node, 'node')}{free}"
    elif demand.min_units == 1:
        wish = f"{' and '.join(amounts) or 'a place'} on one node"
    elif len(amounts) > 1:
        wish = f"{demand.min_units} x ({', '.join(amounts)})"
    else:
        wish = f"{demand.min_units} x {''.join(amounts) or 'a place'}"
    least = "at least " if demand.min_units < demand.units else ""
    verb = "needs" if len(demand.names) == 1 else "need"
    return f"{demand.shown} {verb} {least}{wish}{_rules(problem, demand)}"


def _rules(problem: Problem, demand: HostGroupDemand) -> str:
    labels = [f"{label}={'|'.join(sorted(values))}" for label, values in sorted(demand.labels.items())]
    rules = [f"with {' and '.join(labels)}"] if labels else []
    rules += [f"all in one '{key}'" for key in demand.pack_into]
    rules += [f"spread over '{key}'" for key in demand.spread_over]
    if demand.foes:
        rules.append(f"on no node of {_names_of(problem.groups[foe] for foe in sorted(demand.foes))}")
    return "".join(f", {rule}" for rule in rules)


def _have(problem: Problem, stuck: Stuck, imagine: Imagine | None) -> str:
    if imagine is not None:
        return f"the job has node_num={problem.node_num} x device_per_node={problem.spec.device_per_node}"
    if not problem.nodes:
        return "the cluster has no nodes"
    if stuck.group is None:
        return _have_spares(problem, stuck.used)
    nodes = problem.eligible[stuck.group]
    return _have_free(problem, stuck.group, nodes) if nodes else f"none of {_cluster_nodes(problem)} has such labels"


def _have_spares(problem: Problem, used: int) -> str:
    count = len(problem.nodes)
    if count < used + problem.spare_nodes:
        return f"the cluster has {_count(count, 'node')}, of which the job needs {used} itself"
    return f"those of {_cluster_nodes(problem)} that the job does not use are too small for it or lack its labels"


def _have_free(problem: Problem, group: int, nodes: Sequence[int]) -> str:
    """What is free on the nodes that suit the group, and how much of it the job may use."""
    names = [name for name, need in zip(problem.resources, problem.needs[group], strict=True) if need]
    free = {name: [problem.nodes[node].free.get(name, 0) for node in nodes] for name in names}
    amounts = " and ".join(f"{_shown_amount(sum(amounts))} {name}" for name, amounts in free.items())
    where = _count(len(nodes), "node")
    if len(nodes) < len(problem.nodes):
        where = f"{len(nodes)} of {_count(len(problem.nodes), 'node')}"
    scarce = _scarcest(problem, group)
    most = f", at most {_shown_amount(max(free[scarce]))} {scarce} on one" if scarce and len(nodes) > 1 else ""
    shape = f"node_num={problem.node_num} x device_per_node={problem.spec.device_per_node}"
    spares = f" besides {_count(problem.spare_nodes, 'spare node')}" if problem.spare_nodes else ""
    return f"the cluster has {amounts or 'room'} free on {where}{most}, and the job may use {shape}{spares}"


def _advice(problem: Problem, stuck: Stuck, imagine: Imagine | None) -> str:
    if imagine is not None:
        return "raise node_num or device_per_node, lower total, or share devices with with_collocation"
    if stuck.group is None:
        return "lower spare_nodes, or add nodes"
    if problem.nodes and not problem.eligible[stuck.group]:
        return "add nodes with these labels"
    scarce = _scarcest(problem, stuck.group) or problem.spec.device_type
    return f"lower the counts or resources of the roles, or add nodes with more {scarce}"


def _scarcest(problem: Problem, group: int) -> str | None:
    """The resource that even the best node has least of, measured by the group's need; None if it needs nothing."""
    needs = {name: steps for name, steps in zip(problem.resources, problem.needs[group], strict=True) if steps}

    def often(name: str) -> float:
        return max((problem.nodes[node].free.get(name, 0) for node in problem.eligible[group]), default=0) / needs[name]

    return min(needs, key=often, default=None)


def _cluster_nodes(problem: Problem) -> str:
    return f"the cluster's {_count(len(problem.nodes), 'node')}"


def _names_of(demands: Iterable[HostGroupDemand]) -> str:
    return ", ".join(f"'{name}'" for demand in demands for name in demand.names)


def _shown_amount(amount: float) -> str:
    """Whole numbers in full, others with the digits that Ray counts."""
    return f"{amount:.4f}".rstrip("0").rstrip(".")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class _Family:
    """One kind of change, from the smallest to the largest; a larger one fits whenever a smaller one does."""

    values: Sequence[Any]
    change: Callable[[Any], Changed]
    text: Callable[[Any], str]


def changes_that_fit(problem: Problem, stuck: Stuck, imagine: Imagine | None) -> list[str]:
    """Up to two changes, each the smallest of its kind. Without a cluster, `imagine` makes one for a changed job."""
    checks = _Checks(min(_MOST_CHECKS, _MOST_WORK // (len(problem.nodes) + sum(problem.wanted))))
    found = []
    for families in _Changes(problem, stuck, imagine).alternatives():
        smallest = next(filter(None, map(checks.smallest, families)), None)
        if smallest is not None:
            found.append(smallest)
        if len(found) == _SHOWN:
            break
    return found


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
