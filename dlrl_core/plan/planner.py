"""The planner: spec + cluster view -> plan, or an error that names the role and what is missing. Pure, no Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlrl_core.errors import PlanError
from dlrl_core.plan.amounts import amount_of
from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.demand import DeviceGroupDemand, HostGroupDemand
from dlrl_core.plan.execution_plan import ExecutionPlan, GroupPlan, MemberPlan, PlannedNode, Run, SpareNode
from dlrl_core.plan.problem import Amounts, Placement, Problem, Stuck
from dlrl_core.plan.shortage import shortage
from dlrl_core.plan.solve import solve
from dlrl_core.spec import JobSpec


def make_plan(spec: JobSpec, cluster: ClusterView) -> ExecutionPlan:
    """Place every workload. Deterministic; raises PlanError with what is needed, what there is, and what would fit."""
    problem = Problem(spec, cluster)
    found = solve(problem)
    if isinstance(found, Stuck):
        raise PlanError(shortage(problem, found))
    return _assemble(problem, found)


def needed_cluster(spec: JobSpec) -> ClusterView:
    """The smallest cluster of equal nodes that this job fits: what an embedded local Ray is shaped like.

    Its nodes get the labels that the roles on them ask for; a label to spread over has another value on each node,
    one to pack into the same on all.
    """
    bare = _without_labels(spec)
    spread = {one.spread_over for one in spec.seatings.values() if one.spread_over}
    resources = {name: math.inf for one in spec.seatings.values() for name in ("CPU", *one.resource)}
    nodes = ClusterView.described(
        node_num=spec.node_num + spec.spare_nodes, resources={**resources, spec.device_type: spec.device_per_node}
    ).nodes
    labelled = [
        NodeView(node_id=node.node_id, free=node.free, labels=dict.fromkeys(spread, str(index)))
        for index, node in enumerate(nodes)
    ]
    problem = Problem(bare, ClusterView(nodes=tuple(labelled)))
    found = solve(problem)
    if isinstance(found, Stuck):
        raise PlanError(shortage(problem, found, is_described=False))
    return _trimmed(Problem(spec, ClusterView(nodes=tuple(labelled))), found)


def _without_labels(spec: JobSpec) -> JobSpec:
    """The same job where any node has any label; roles that want different labels are kept apart instead."""
    wishes = {name: one.node_labels for name, one in spec.seatings.items()}
    apart = tuple(
        (one, other)
        for one in wishes
        for other in wishes
        if one < other
        and any(
            not set(wishes[one][key]) & set(wishes[other][key]) for key in wishes[one].keys() & wishes[other].keys()
        )
    )
    plain: dict[str, object] = {"node_labels": {}, "pack_into": None}
    roles = tuple(
        role.model_copy(update={**plain, "parts": tuple(part.model_copy(update=plain) for part in role.parts)})
        for role in spec.roles
    )
    return spec.model_copy(update={"roles": roles, "separations": (*spec.separations, *apart)})


def _trimmed(problem: Problem, placement: Placement) -> ClusterView:
    """Equal nodes with what the fullest needs, in whole numbers, and with the labels that their guests ask for."""
    spec = problem.spec
    used = _used(problem, placement)
    fullest = [max(amounts) for amounts in zip(*used.values(), strict=True)]
    free = {
        name: float(math.ceil(amount_of(steps)))
        for name, steps in zip(problem.resources, fullest, strict=True)
        if steps or name == "CPU"
    }
    free[spec.device_type] = max(free.get(spec.device_type, 0.0), float(spec.device_per_node))
    packed = {one.pack_into for one in spec.seatings.values() if one.pack_into}
    labels = [{**dict.fromkeys(packed, "0"), **node.labels} for node in problem.nodes]
    for group, seats in zip(problem.groups, placement.seats, strict=True):
        for node, _ in seats:
            labels[node] |= {label: min(values) for label, values in group.labels.items()}
    for spare in placement.spares:
        labels[spare.node] = labels[spare.replaces[0]]
    return ClusterView(
        nodes=tuple(
            NodeView(node_id=node.node_id, free=free, labels=labels[index]) for index, node in enumerate(problem.nodes)
        )
    )


def _used(problem: Problem, placement: Placement) -> dict[int, Amounts]:
    """What the placement takes of each node it uses."""
    used: dict[int, Amounts] = {}
    for need, seats in zip(problem.needs, placement.seats, strict=True):
        for node, units in seats:
            before = used.get(node, (0,) * len(need))
            used[node] = tuple(one + units * more for one, more in zip(before, need, strict=True))
    return used


def _assemble(problem: Problem, placement: Placement) -> ExecutionPlan:
    used = sorted({node for seats in placement.seats for node, _ in seats})
    place = {node: index for index, node in enumerate(used)}
    next_device = [0] * len(used)
    runs: dict[str, tuple[Run, ...]] = {}
    found: list[tuple[DeviceGroupDemand, HostGroupDemand, int]] = []
    for index, host in enumerate(problem.groups):
        found += [(group, host, index) for group in host.groups]
    order = list(problem.spec.seatings)
    found.sort(key=lambda one: order.index(one[0].members[0].name))
    for group, _, index in found:
        group_runs = []
        for node, units in placement.seats[index]:
            seats, at = units * group.seats_per_unit, place[node]
            group_runs.append(Run(at, seats, next_device[at]))
            next_device[at] += seats * group.devices
        runs[group.members[0].name] = tuple(group_runs)
    counts = {
        member.name: sum(run.seats for run in runs[group.members[0].name])
        for group, _, _ in found
        for member in group.members
    }
    sizes = {name: counts[name] for name in order}
    return ExecutionPlan(
        device_type=problem.spec.device_type,
        nodes=tuple(_planned(problem.nodes[node]) for node in used),
        groups=tuple(_group_plan(group, runs[group.members[0].name], sizes) for group, _, _ in found),
        spares=tuple(
            SpareNode(
                node_id=problem.nodes[spare.node].node_id,
                address=problem.nodes[spare.node].address,
                resources=_amounts(dict(zip(problem.resources, spare.amounts, strict=True))),
                replaces=tuple(place[node] for node in spare.replaces),
            )
            for spare in placement.spares
        ),
    )


def _planned(node: NodeView) -> PlannedNode:
    return PlannedNode(node_id=node.node_id, address=node.address)


def _group_plan(group: DeviceGroupDemand, runs: tuple[Run, ...], sizes: dict[str, int]) -> GroupPlan:
    members = []
    for member in group.members:
        parts = [name for name in sizes if name.partition(".")[0] == member.role.value]
        members.append(
            MemberPlan(
                role=member.role,
                part=member.part,
                first_rank=sum(sizes[name] for name in parts[: parts.index(member.name)]),
                world_size=sum(sizes[name] for name in parts),
                share=str(member.share),
                resources=dict(member.resources),
            )
        )
    return GroupPlan(members=tuple(members), devices_per_seat=group.devices, resources=_amounts(group.seat), runs=runs)


def _amounts(steps: Mapping[str, int]) -> dict[str, float]:
    return {name: amount_of(count) for name, count in steps.items() if count}
