"""Where workloads sit: with whom, apart from whom, on nodes with which labels, and replaced by which."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

from host_units import HostUnit, host_units

from dlrl_core.plan import ClusterView, ExecutionPlan, NodeView, WorkloadPlan
from dlrl_core.spec import JobSpec


def steps(amount: float) -> int:
    return round(amount * 10_000)


def full_name(workload: WorkloadPlan) -> str:
    return f"{workload.role.value}.{workload.part}" if workload.part else workload.role.value


def by_name(plan: ExecutionPlan) -> dict[str, list[WorkloadPlan]]:
    found: dict[str, list[WorkloadPlan]] = defaultdict(list)
    for workload in plan.workloads:
        found[full_name(workload)].append(workload)
    return found


def _device_groups(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Rank i of each role of a collocation is on the same devices, and nobody else is."""
    guests = defaultdict(set)
    for workload in plan.workloads:
        guests[workload.bundle].add((full_name(workload), workload.part_rank))
    for workload in plan.workloads:
        name = full_name(workload)
        group = next((group for group in spec.with_collocation if name in group), ()) or (name,)
        if guests[workload.bundle] != {(str(one), workload.part_rank) for one in group}:
            yield f"{workload.name} sits with {guests[workload.bundle]}"
        roles = {str(one).partition(".")[0] for one in group} if len(group) > 1 else set()
        if {role.value for role in workload.collocated_with} != roles:
            yield f"{workload.name} says it sits with {workload.collocated_with}"


def _host_groups(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Rank i of the smallest role of a host collocation is on one node with its block of each other one."""
    found = by_name(plan)
    for group in spec.with_host_collocation:
        smallest = min(len(found[name]) for name in group)
        for name in group:
            block = len(found[name]) // smallest
            hosts = [found[name][rank * block : (rank + 1) * block] for rank in range(smallest)]
            first = min(group, key=lambda one: len(found[one]))
            for rank, workloads in enumerate(hosts):
                if {workload.node for workload in workloads} != {found[first][rank].node}:
                    yield f"'{name}' is not with rank {rank} of '{first}'"


def _separations(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    nodes = defaultdict(set)
    for workload in plan.workloads:
        for name in {full_name(workload), workload.role.value}:
            nodes[name].add(workload.node)
    for group in spec.without_collocation:
        for one, other in itertools.combinations(group, 2):
            if nodes[one] & nodes[other]:
                yield f"'{one}' and '{other}' meet on {nodes[one] & nodes[other]}"


def _labels(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Only nodes with the labels; packed into one value; spread no more unevenly than it must be."""
    views = {node.node_id: node for node in cluster.nodes}
    labels = [views[node.node_id].labels for node in plan.nodes]
    found = by_name(plan)
    for name, request in spec.placement_requests.items():
        nodes = [labels[workload.node] for workload in found[name]]
        if not all(node.get(label) in values for node in nodes for label, values in request.node_labels.items()):
            yield f"'{name}' is on a node without its labels"
        for label in filter(None, (request.pack_into, request.spread_over)):
            if not all(label in node for node in nodes):
                yield f"'{name}' is on a node without the label '{label}'"
        if request.pack_into and len({node.get(request.pack_into) for node in nodes}) > 1:
            yield f"'{name}' is in more than one '{request.pack_into}'"
    for unit in host_units(spec):
        size = len(found[unit.first]) // unit.seats[unit.first]
        on = [found[unit.first][index * unit.seats[unit.first]].node for index in range(size)]
        partition = unit.pack_values(views[plan.nodes[on[0]].node_id])
        for label, most in unit.spread_limits(spec, cluster, partition, size).items():
            counts = Counter(labels[node].get(label) for node in on)
            if max(counts.values()) > most:
                yield f"'{unit.first}' has {counts} units in '{label}', at most {most} are even"


def _spares(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Every node can be replaced by a spare one, and each spare one has what it needs for that."""
    views = {node.node_id: node for node in cluster.nodes}
    if len(plan.spares) != spec.spare_nodes:
        yield f"{len(plan.spares)} spare nodes instead of {spec.spare_nodes}"
    replaced = {node for spare in plan.spares for node in spare.replaces}
    if plan.spares and replaced != set(range(len(plan.nodes))):
        yield f"only the nodes {replaced} can be replaced"
    for spare in plan.spares:
        view = views[spare.node_id]
        if not spare.replaces:
            yield f"{spare.node_id} replaces nothing"
        if any(steps(amount) > steps(view.free.get(name, 0)) for name, amount in spare.resources.items()):
            yield f"{spare.node_id} has less than {spare.resources}"
        for node in spare.replaces:
            used: Counter[str] = Counter()
            for bundle in plan.bundles:
                if bundle.node == node:
                    used.update({name: steps(amount) for name, amount in bundle.resources.items()})
            if any(amount > steps(spare.resources.get(name, 0)) for name, amount in used.items()):
                yield f"{spare.node_id} has {spare.resources}, node {node} needs {used}"
            names = {full_name(workload) for workload in plan.workloads if workload.node == node}
            for unit in host_units(spec):
                if names & set(unit.seats) and not _suits(unit, view, views[plan.nodes[node].node_id]):
                    yield f"{spare.node_id} has the wrong labels for node {node}"


def _suits(unit: HostUnit, spare: NodeView, node: NodeView) -> bool:
    return unit.is_allowed_on(spare) and unit.pack_values(spare) == unit.pack_values(node)


PLACE_PROMISES = (_device_groups, _host_groups, _separations, _labels, _spares)
