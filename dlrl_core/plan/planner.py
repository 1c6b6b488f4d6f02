"""The planner: spec + cluster view -> plan, or an error that names the role and what is missing. Pure, no Ray."""

from __future__ import annotations

from collections.abc import Mapping

from dlrl_core.errors import PlanError
from dlrl_core.plan.amounts import amount_of
from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.demand import DeviceGroupDemand, HostGroupDemand
from dlrl_core.plan.execution_plan import ExecutionPlan, GroupPlan, MemberPlan, PlannedNode, Run, SpareNode
from dlrl_core.plan.problem import Placement, Problem, Stuck
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


def _assemble(problem: Problem, placement: Placement) -> ExecutionPlan:
    used = sorted({node for seats in placement.seats for node, _ in seats})
    place = {node: index for index, node in enumerate(used)}
    next_device = [0] * len(used)
    runs: dict[str, tuple[Run, ...]] = {}
    found: list[tuple[DeviceGroupDemand, HostGroupDemand, int]] = []
    for index, host in enumerate(problem.groups):
        found += [(group, host, index) for group in host.groups]
    order = list(problem.spec.placement_requests)
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
