"""What a plan promises, checked without the planner: each broken promise as a text.

Written from the words of the manual, not from the planner's code: only the spec, the cluster and the finished plan
are looked at. Amounts are compared in the steps of 1/10,000 that Ray counts in.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction

from place_promises import PLACE_PROMISES, full_name, steps

from dlrl_core.plan import ClusterView, ExecutionPlan
from dlrl_core.spec import JobSpec


def broken_promises(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> list[str]:
    checks = (_nodes, _bundles, _demands, _ranks, *PLACE_PROMISES)
    return [broken for check in checks for broken in check(spec, cluster, plan)]


def _nodes(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """No node or device holds more than it has."""
    ids = [node.node_id for node in (*plan.nodes, *plan.spares)]
    if len(set(ids)) < len(ids):
        yield f"a node is used twice: {ids}"
    if len(plan.nodes) > spec.node_num:
        yield f"{len(plan.nodes)} nodes are used, node_num={spec.node_num}"
    if {workload.node for workload in plan.workloads} != set(range(len(plan.nodes))):
        yield "a node of the plan has no workload"
    for index, node in enumerate(plan.nodes):
        free = next(one.free for one in cluster.nodes if one.node_id == node.node_id)
        here = [bundle for bundle in plan.bundles if bundle.node == index]
        for name in {name for bundle in here for name in bundle.resources}:
            if sum(steps(bundle.resources.get(name, 0)) for bundle in here) > steps(free.get(name, 0)):
                yield f"node {index} has too little {name}"
        devices = [device for bundle in here for device in bundle.devices]
        if sorted(devices) != list(range(len(devices))):
            yield f"node {index} has the devices {devices}"
        if len(devices) > min(spec.device_per_node, math.floor(free.get(spec.device_type, 0))):
            yield f"node {index} has {len(devices)} devices in use"


def _bundles(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """The workloads of a bundle sit on its node and fit into it."""
    for number, bundle in enumerate(plan.bundles):
        guests = [workload for workload in plan.workloads if workload.bundle == number]
        if {guest.node for guest in guests} != {bundle.node}:
            yield f"bundle {number} is empty or has guests of another node"
        if steps(bundle.resources.get(spec.device_type, 0)) != len(bundle.devices) * 10_000:
            yield f"bundle {number} reserves {bundle.resources} for the devices {bundle.devices}"
        for name in {name for guest in guests for name in guest.resources}:
            if sum(steps(guest.resources.get(name, 0)) for guest in guests) > steps(bundle.resources.get(name, 0)):
                yield f"bundle {number} has too little {name}"


def _demands(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Each workload gets what it asked for, and the share of its devices that it asked for or that is left."""
    for workload in plan.workloads:
        request = spec.placement_requests[full_name(workload)]
        for name, amount in {"CPU": 1, **request.resource}.items():
            if name != spec.device_type and steps(workload.resources.get(name, 0)) < steps(amount):
                yield f"{workload.name} has {workload.resources}, it asked for {request.resource}"
        asked = request.resource.get(spec.device_type)
        if asked is not None and abs(float(Fraction(workload.share)) - asked) > 1e-4:
            yield f"{workload.name} has the share {workload.share}, it asked for {asked}"
        if abs(Fraction(workload.share) - Fraction(workload.resources[spec.device_type])) > Fraction(1, 10_000):
            yield f"{workload.name} has the share {workload.share} and {workload.resources}"
    guests = defaultdict(list)
    for workload in plan.workloads:
        guests[workload.bundle].append(workload)
    for together in guests.values():
        if any(spec.device_type not in spec.placement_requests[full_name(one)].resource for one in together):
            rest = [
                one.share
                for one in together
                if spec.device_type not in spec.placement_requests[full_name(one)].resource
            ]
            if len(set(rest)) > 1 or sum(Fraction(one.share) for one in together) != 1:
                yield f"shares {[one.share for one in together]}: what is left is not shared evenly"
            if sum(steps(one.resources[spec.device_type]) for one in together) != 10_000:
                yield f"amounts {[one.resources for one in together]} do not add up to one device"


def _ranks(spec: JobSpec, cluster: ClusterView, plan: ExecutionPlan) -> Iterator[str]:
    """Ranks are complete and run through the parts in order; counts are as asked."""
    sizes = Counter(full_name(workload) for workload in plan.workloads)
    for name, request in spec.placement_requests.items():
        least = request.total if request.min_total is None else request.min_total
        if not least <= sizes[name] <= request.total or sizes[name] % (request.per_node or 1):
            yield f"'{name}' has {sizes[name]} workloads: {request}"
        on_node = Counter(workload.node for workload in plan.workloads if full_name(workload) == name)
        if request.per_node and set(on_node.values()) != {request.per_node}:
            yield f"'{name}' has {on_node} on its nodes, per_node={request.per_node}"
    for role in spec.roles:
        mine = plan.of_role(role.role)
        expected = [
            (f"{role.role.value}-{rank}", rank, len(mine), name, part_rank, sizes[name])
            for rank, (name, part_rank) in enumerate(
                (name, i) for name in role.placement_requests for i in range(sizes[name])
            )
        ]
        if [(w.name, w.rank, w.world_size, full_name(w), w.part_rank, w.part_size) for w in mine] != expected:
            yield f"the ranks of '{role.role}' are wrong"
        for node in {workload.node for workload in mine}:
            here = [workload for workload in mine if workload.node == node]
            if [(w.local_rank, w.local_world_size) for w in here] != [(i, len(here)) for i in range(len(here))]:
                yield f"the local ranks of '{role.role}' on node {node} are wrong"
