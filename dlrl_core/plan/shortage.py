"""Why a job does not fit: what it needs, what the cluster has, and changes with which it would fit.

The changes come from plugins, by the hook `dlrl_plan_advisers`.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlrl_core.plan.cluster_view import ClusterView
from dlrl_core.plan.problem import HostGroupDemand, Problem, Stuck, amount_of
from dlrl_core.spec import JobSpec

_SHOWN = 2
_log = logging.getLogger("dlrl.plugin")

Imagine = Callable[[JobSpec], ClusterView]
"""The nodes that a job's own shape allows."""


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A job and a cluster that do not fit each other, as a plan adviser gets them."""

    problem: Problem
    """The job (`problem.spec`) and the nodes (`problem.nodes`), in numbers."""
    stuck: Stuck
    """What did not fit."""
    imagine: Imagine | None
    """None for a real or described cluster. Else there is none, and this makes the nodes that a changed job allows."""


def shortage(problem: Problem, stuck: Stuck, imagine: Imagine | None = None) -> str:
    """One sentence. `imagine`: there is no cluster, only the nodes that the job's own shape allows."""
    changes = list(itertools.islice(_advised(Misfit(problem=problem, stuck=stuck, imagine=imagine)), _SHOWN))
    advice = f"it would fit with {', or with '.join(changes)}" if changes else _advice(problem, stuck, imagine)
    doubt = "" if stuck.is_certain else "no place was found, though not all ways were tried: "
    return f"{doubt}{_need(problem, stuck)}; {_have(problem, stuck, imagine)}; {advice}"


def _advised(misfit: Misfit) -> Iterator[str]:
    """The changes that advisers found, one adviser after the other; each is asked for no more than are shown."""
    from dlrl_core.plugin import plugin_host

    for name, adviser in plugin_host().plan_advisers().items():
        try:
            yield from adviser(misfit)
        except Exception as error:  # noqa: BLE001 - code of a plugin: what is missing must be told all the same
            _log.warning("plan adviser '%s' failed: %s: %s", name, type(error).__name__, error)


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
