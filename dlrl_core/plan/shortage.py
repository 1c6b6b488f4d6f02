"""Why a job does not fit: what is needed, what there is, and the nearest change that would fit."""

from __future__ import annotations

from collections.abc import Sequence

from dlrl_core.plan.amounts import PLENTY, amount_of
from dlrl_core.plan.demand import HostGroupDemand
from dlrl_core.plan.nearest_change import changes_that_fit
from dlrl_core.plan.problem import Problem, Stuck


def shortage(problem: Problem, stuck: Stuck, *, is_described: bool = True) -> str:
    """One sentence. `is_described`: there is a cluster; else the job's own shape is all there is to sit on."""
    need = _spares_needed(problem) if stuck.group is None else _needed(problem, stuck.group)
    have = _cluster_has(problem, stuck) if is_described else _job_has(problem, stuck)
    fits = changes_that_fit(problem, stuck, is_described=is_described)
    advice = f"it would fit with {', or with '.join(fits)}" if fits else _advice(problem, is_described)
    doubt = "" if stuck.is_certain else "no place was found, though not all ways were tried: "
    return f"{doubt}{need}; {have}; {advice}"


def _needed(problem: Problem, group: int) -> str:
    demand = problem.groups[group]
    amounts = _amounts(problem.resources, problem.needs[group], times=demand.units_per_node or 1)
    if demand.units_per_node:
        wish = f"{_count(demand.min_units // demand.units_per_node, 'node')} with {amounts} free each"
    elif demand.min_units == 1:
        wish = f"{amounts} on one node"
    else:
        wish = f"{demand.min_units} x {amounts}"
    return f"{demand.shown} needs {wish}{_rules(problem, demand)}"


def _rules(problem: Problem, demand: HostGroupDemand) -> str:
    rules = [f"with {label}={'|'.join(sorted(values))}" for label, values in sorted(demand.labels.items())]
    rules += [f"all in one '{key}'" for key in demand.pack_into]
    rules += [f"spread over '{key}'" for key in demand.spread_over]
    rules += [f"on no node of {problem.groups[foe].shown}" for foe in sorted(demand.foes)]
    return f", {', '.join(rules)}" if rules else ""


def _spares_needed(problem: Problem) -> str:
    return f"the job needs {_count(problem.spare_nodes, 'spare node')} that can replace any of its nodes"


def _job_has(problem: Problem, stuck: Stuck) -> str:
    shape = f"the job has node_num={problem.node_num} x device_per_node={problem.spec.device_per_node}"
    return f"{shape}{_left(problem, stuck)}"


def _cluster_has(problem: Problem, stuck: Stuck) -> str:
    nodes = range(len(problem.nodes)) if stuck.group is None else problem.eligible[stuck.group]
    if not nodes:
        labels = "such labels" if problem.nodes else "free resources"
        return f"none of the cluster's {_count(len(problem.nodes), 'node')} has {labels}"
    needs = problem.needs[stuck.group] if stuck.group is not None else problem.caps[0]
    free = [
        f"{sum(min(problem.nodes[n].free.get(name, 0), PLENTY) for n in nodes):g} {name}"
        for name, need in zip(problem.resources, needs, strict=True)
        if need
    ]
    most = max(problem.nodes[n].free.get(problem.resources[0], 0) for n in nodes)
    shape = f"the job may use node_num={problem.node_num} x device_per_node={problem.spec.device_per_node}"
    where = "on 1 node" if len(nodes) == 1 else f"on {len(nodes)} nodes, at most {most:g} {problem.resources[0]} on one"
    return f"the cluster has {', '.join(free) or 'nodes'} free {where}, and {shape}{_left(problem, stuck)}"


def _left(problem: Problem, stuck: Stuck) -> str:
    """What the groups before it left over; nothing to say if it would not fit alone."""
    if stuck.left is None or stuck.group is None or len(problem.groups) == 1:
        return ""
    needs = problem.needs[stuck.group]
    nodes = problem.eligible[stuck.group]
    left = [
        f"{amount_of(sum(stuck.left[n][index] for n in nodes)):g} {name}"
        for index, name in enumerate(problem.resources)
        if needs[index]
    ]
    return f", of which the other roles leave {', '.join(left)}"


def _advice(problem: Problem, is_described: bool) -> str:
    device = problem.spec.device_type
    if not is_described:
        return "raise node_num or device_per_node, lower total, or share devices with with_collocation"
    return f"lower the counts or resources of its roles, or add nodes with more {device}"


def _amounts(names: Sequence[str], steps: Sequence[int], times: int) -> str:
    return " and ".join(
        f"{amount_of(count * times):g} {name}" for name, count in zip(names, steps, strict=True) if count
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
