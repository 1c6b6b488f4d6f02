"""The planner: spec + cluster view -> plan, or an error that names the role and what is missing.

A *group* is a set of roles that share devices, or a role by itself. A *seat* is the place of rank i of
every role of a group: one device, or CPUs alone. Groups are seated on the job's `node_num` slots first,
then the slots are matched with real nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dlrl_core.errors import PlanError
from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.execution_plan import Bundle, ExecutionPlan, PlannedNode, WorkloadPlan
from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec, RoleSpec

_RAY_STEPS = 10_000
"""Ray counts resources in steps of 1/10,000; shares are rounded down to it, so that they never add up past one."""


@dataclass(frozen=True, kw_only=True)
class _Group:
    roles: tuple[RoleSpec, ...]
    needs_device: bool
    per_node: int | None

    @property
    def size(self) -> int:
        return self.roles[0].total

    @property
    def label(self) -> str:
        return " + ".join(f"'{role.role}'" for role in self.roles)


def make_plan(spec: JobSpec, cluster: ClusterView) -> ExecutionPlan:
    """Place every workload. Deterministic; raises PlanError with what is needed and what there is."""
    groups = _groups(spec)
    seats = _seat(groups, spec)
    demands = _slot_demands(groups, seats, spec)
    chosen = _match_slots(demands, cluster, spec)
    return _assemble(groups, seats, chosen, spec)


def needed_cluster(spec: JobSpec) -> ClusterView:
    """The smallest cluster of equal nodes that this job fits: what an embedded local Ray is shaped like."""
    groups = _groups(spec)
    demands = _slot_demands(groups, _seat(groups, spec), spec)
    names = {name for demand in demands for name in demand}
    largest = {name: float(math.ceil(max(demand.get(name, 0) for demand in demands))) for name in names}
    largest[spec.device_type] = max(largest.get(spec.device_type, 0.0), float(spec.device_per_node))
    return ClusterView.described(node_num=spec.node_num, resources=largest)


def resources_of(role: RoleSpec, spec: JobSpec) -> dict[str, float]:
    """Ray resources of one workload of the role: what the user named, and our defaults for the rest."""
    sharers = max(1, len(spec.collocation_of(role.role)))
    defaults = {"CPU": 1.0, spec.device_type: math.floor(_RAY_STEPS / sharers) / _RAY_STEPS}
    return {**defaults, **role.resource}


def _groups(spec: JobSpec) -> list[_Group]:
    groups = []
    done: set[RoleType] = set()
    for role in spec.roles:
        if role.role in done:
            continue
        members = spec.collocation_of(role.role) or (role.role,)
        done.update(members)
        roles = tuple(member for member in spec.roles if member.role in members)
        groups.append(_group(roles, spec))
    return groups


def _group(roles: tuple[RoleSpec, ...], spec: JobSpec) -> _Group:
    share = sum(resources_of(role, spec).get(spec.device_type, 0) for role in roles)
    group = _Group(roles=roles, needs_device=share > 0, per_node=roles[0].per_node)
    if spec.device_type != "CPU" and share > 1 + 1e-9:
        raise PlanError(
            f"role {group.label} asks for {share:g} {spec.device_type} for each rank; a workload sits on one device, "
            "so that its shares must add up to at most 1"
        )
    return group


Seats = list[list[int]]
"""For each group, the slot of each rank."""


def _seat(groups: list[_Group], spec: JobSpec) -> Seats:
    """Slots for all groups: the most demanding first, each on the slots with the most free devices."""
    free = [spec.device_per_node] * spec.node_num
    order = sorted(range(len(groups)), key=lambda i: (not groups[i].needs_device, -(groups[i].per_node or 0), i))
    seats: Seats = [[] for _ in groups]
    for index in order:
        group = groups[index]
        slots = _slots_for(group, free, spec)
        if group.needs_device:
            for slot in slots:
                free[slot] -= 1
        seats[index] = sorted(slots)
    return seats


def _slots_for(group: _Group, free: list[int], spec: JobSpec) -> list[int]:
    if group.per_node is not None:
        count = group.size // group.per_node
        fullest_first = sorted(range(len(free)), key=lambda slot: (-free[slot], slot))
        chosen = fullest_first[:count]
        if (group.needs_device and any(free[slot] < group.per_node for slot in chosen)) or len(chosen) < count:
            raise PlanError(_too_few_devices(group, free, spec))
        return [slot for slot in chosen for _ in range(group.per_node)]
    if not group.needs_device:
        return [rank % len(free) for rank in range(group.size)]
    if sum(free) < group.size:
        raise PlanError(_too_few_devices(group, free, spec))
    return [slot for slot, devices in enumerate(free) for _ in range(devices)][: group.size]


def _too_few_devices(group: _Group, free: list[int], spec: JobSpec) -> str:
    shape = f"node_num={spec.node_num} x device_per_node={spec.device_per_node}"
    wish = f"{group.size} devices"
    if group.per_node is not None:
        wish = f"{group.size // group.per_node} nodes with {group.per_node} free devices each"
    return (
        f"role {group.label} needs {wish}; the job has {shape} and {sum(free)} devices left "
        f"({', '.join(str(count) for count in free)} on its nodes); raise node_num or device_per_node, lower total, "
        "or share devices with with_collocation"
    )


def _slot_demands(groups: list[_Group], seats: Seats, spec: JobSpec) -> list[dict[str, float]]:
    demands: list[dict[str, float]] = [{} for _ in range(spec.node_num)]
    for group, slots in zip(groups, seats, strict=True):
        for slot in slots:
            for name, amount in _seat_resources(group, spec).items():
                demands[slot][name] = demands[slot].get(name, 0) + amount
    return demands


def _seat_resources(group: _Group, spec: JobSpec) -> dict[str, float]:
    """What one seat reserves. A device is reserved whole: nobody who did not ask shares it."""
    total: dict[str, float] = {}
    for role in group.roles:
        for name, amount in resources_of(role, spec).items():
            total[name] = round(total.get(name, 0) + amount, 4)
    if group.needs_device:
        total[spec.device_type] = float(math.ceil(total[spec.device_type]))
    return {name: amount for name, amount in total.items() if amount > 0}


def _match_slots(demands: list[dict[str, float]], cluster: ClusterView, spec: JobSpec) -> dict[int, NodeView]:
    """A node of its own for each slot that has guests: the largest demand first, on the node that fits it tightest."""
    used = [slot for slot, demand in enumerate(demands) if demand]
    if len(used) > len(cluster.nodes):
        raise PlanError(
            f"the plan needs {len(used)} nodes, the cluster has {len(cluster.nodes)}; lower node_num or add nodes"
        )
    free = list(cluster.nodes)
    chosen: dict[int, NodeView] = {}
    for slot in sorted(used, key=lambda slot: (-demands[slot].get(spec.device_type, 0), slot)):
        fitting = [node for node in free if not _missing(demands[slot], node.free)]
        if not fitting:
            raise PlanError(_shortage(demands, cluster, spec))
        best = min(fitting, key=lambda node: (node.free.get(spec.device_type, 0), cluster.nodes.index(node)))
        free.remove(best)
        chosen[slot] = best
    return chosen


def _missing(demand: Mapping[str, float], free: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in demand.items() if free.get(name, 0) + 1e-6 < amount}


def _shortage(demands: list[dict[str, float]], cluster: ClusterView, spec: JobSpec) -> str:
    names = [spec.device_type, *sorted({name for demand in demands for name in demand} - {spec.device_type})]
    for name in names:
        needed = sum(demand.get(name, 0) for demand in demands)
        if needed > cluster.total(name):
            return (
                f"the plan needs {needed:g} {name}, the cluster has {cluster.total(name):g} free; {_advice(name, spec)}"
            )
    needs = "; ".join(f"node {i}: {_amounts(demand)}" for i, demand in enumerate(demands) if demand)
    haves = "; ".join(f"{node.address or node.node_id}: {_amounts(node.free)}" for node in cluster.nodes)
    return f"no nodes fit the plan; it needs on each of its nodes {needs}; the cluster has free {haves}"


def _advice(name: str, spec: JobSpec) -> str:
    if name == spec.device_type:
        return "lower node_num or device_per_node, or add nodes"
    return f"lower it with .resource({{'{name}': ...}}) on a role, or add nodes"


def _amounts(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if name in ("CPU", "GPU") or amount}
    return ", ".join(
        f"{amount:g} {name}" for name, amount in sorted(shown.items()) if ":" not in name and "memory" not in name
    )


def _assemble(groups: list[_Group], seats: Seats, chosen: dict[int, NodeView], spec: JobSpec) -> ExecutionPlan:
    node_index = {slot: index for index, slot in enumerate(sorted(chosen))}
    bundles: list[Bundle] = []
    workloads: dict[RoleType, list[WorkloadPlan]] = {}
    next_device = [0] * spec.node_num
    for group, slots in zip(groups, seats, strict=True):
        local_ranks = [slots[:rank].count(slot) for rank, slot in enumerate(slots)]
        for rank, slot in enumerate(slots):
            device = next_device[slot] if group.needs_device else None
            next_device[slot] += group.needs_device
            bundles.append(Bundle(node=node_index[slot], device=device, resources=_seat_resources(group, spec)))
            for role in group.roles:
                workload = WorkloadPlan(
                    name=role.role.workload_name(rank),
                    role=role.role,
                    rank=rank,
                    world_size=role.total,
                    local_rank=local_ranks[rank],
                    local_world_size=slots.count(slot),
                    node=node_index[slot],
                    bundle=len(bundles) - 1,
                    resources=resources_of(role, spec),
                    collocated_with=tuple(sorted(spec.collocation_of(role.role), key=list(RoleType).index)),
                )
                workloads.setdefault(role.role, []).append(workload)
    return ExecutionPlan(
        device_type=spec.device_type,
        nodes=tuple(PlannedNode(node_id=chosen[slot].node_id, address=chosen[slot].address) for slot in sorted(chosen)),
        bundles=tuple(bundles),
        workloads=tuple(workload for role in spec.roles for workload in workloads[role.role]),
    )
