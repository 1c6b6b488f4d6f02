"""The planner: spec + cluster view -> plan, or an error that names the role and what is missing. Pure, no Ray.

`needed_cluster` gives the smallest cluster that a job fits: the shape of an embedded local Ray.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from dlrl_core.errors import PlanError
from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.execution_plan import ExecutionPlan, GroupPlan, MemberPlan, PlannedNode, Run, SpareNode
from dlrl_core.plan.problem import DeviceGroupDemand, Placement, Problem, Spare, Stuck, amount_of
from dlrl_core.plan.search import solve
from dlrl_core.plan.shortage import shortage
from dlrl_core.spec import JobSpec

Labels = dict[str, str | None]
"""Labels of a kind of nodes; None stands for a value that differs on each node."""


def make_plan(spec: JobSpec, cluster: ClusterView) -> ExecutionPlan:
    """Place every workload. Deterministic; raises PlanError with what is needed, what there is, and what would fit."""
    problem = Problem(spec, cluster)
    found = solve(problem)
    if isinstance(found, Stuck):
        raise PlanError(shortage(problem, found))
    return _assemble(problem, found)


def _assemble(problem: Problem, placement: Placement) -> ExecutionPlan:
    """The plan of a placement: ranks counted through the nodes in order, seats through the devices of a node."""
    used = sorted({node for units in placement.node_units for node, _ in units})
    index_of = {node: index for index, node in enumerate(used)}
    order = list(problem.spec.placement_requests)
    hosts = zip(problem.groups, placement.node_units, strict=True)
    groups = [(group, units) for host, units in hosts for group in host.groups]
    groups.sort(key=lambda one: order.index(one[0].members[0].name))
    next_device = [0] * len(used)
    found: list[tuple[DeviceGroupDemand, tuple[Run, ...]]] = []
    for group, units in groups:
        runs = []
        for node, count in units:
            seats, at = count * group.seats_per_unit, index_of[node]
            runs.append(Run(at, seats, next_device[at]))
            next_device[at] += seats * group.devices
        found.append((group, tuple(runs)))
    counts = {member.name: sum(run.seats for run in runs) for group, runs in found for member in group.members}
    sizes = {name: counts[name] for name in order}
    return ExecutionPlan(
        device_type=problem.spec.device_type,
        nodes=tuple(_planned_node(problem.nodes[node]) for node in used),
        groups=tuple(_group_plan(group, runs, sizes) for group, runs in found),
        spares=tuple(_spare_node(problem, spare, index_of) for spare in placement.spares),
    )


def _planned_node(view: NodeView) -> PlannedNode:
    return PlannedNode(node_id=view.node_id, address=view.address)


def _spare_node(problem: Problem, spare: Spare, index_of: Mapping[int, int]) -> SpareNode:
    view = problem.nodes[spare.node]
    return SpareNode(
        node_id=view.node_id,
        address=view.address,
        resources=_amounts(dict(zip(problem.resources, spare.amounts, strict=True))),
        replaces=tuple(index_of[node] for node in spare.replaces),
    )


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


def needed_cluster(spec: JobSpec) -> ClusterView:
    """The smallest cluster of equal nodes that this job fits; raises PlanError if its own shape is too small for it.

    Its nodes get the labels that the roles on them ask for; a label to spread over has another value on each node,
    one to pack into the same on all.
    """
    problem = Problem(spec, imagined_cluster(spec))
    found = solve(problem)
    if isinstance(found, Stuck):
        raise PlanError(shortage(problem, found, imagine=imagined_cluster))
    return _trimmed(problem, found)


def imagined_cluster(spec: JobSpec) -> ClusterView:
    """As many nodes of each kind of labels as the job may use, with the devices it may use and plenty of the rest."""
    resources = {name: math.inf for one in spec.placement_requests.values() for name in ("CPU", *one.resource)}
    free = {**resources, spec.device_type: spec.device_per_node}
    labels = (
        {label: str(index) if value is None else value for label, value in kind.items()}
        for kind in _kinds_of_labels(spec)
        for index in range(spec.node_num + spec.spare_nodes)
    )
    return ClusterView(nodes=_equal_nodes(free, labels))


def _kinds_of_labels(spec: JobSpec) -> list[Labels]:
    """The labels that nodes may need to have. One kind is left out if another one suits the same roles and more."""
    spread = {one.spread_over for one in spec.placement_requests.values() if one.spread_over}
    packed = {one.pack_into for one in spec.placement_requests.values() if one.pack_into}
    free = {label: "0" if label in packed else None for label in sorted(spread | packed)}
    kinds: dict[tuple[tuple[str | None, ...], frozenset[str]], Labels] = {}
    for named in _named_labels(spec, spread):
        kind = {**free, **named}
        suited = frozenset(
            name
            for name, one in spec.placement_requests.items()
            if all(kind[label] in values for label, values in one.node_labels.items())
        )
        kinds.setdefault((tuple(kind[label] for label in sorted(spread)), suited), kind)
    return [
        kind
        for (where, suited), kind in kinds.items()
        if suited and not any(where == other and suited < more for other, more in kinds)
    ]


def _named_labels(spec: JobSpec, spread: set[str]) -> Iterator[Labels]:
    """All combinations of the values that roles ask for; of a label that others are spread over, also of their own."""
    values: dict[str, dict[str | None, None]] = {}
    for one in spec.placement_requests.values():
        for label, wanted in one.node_labels.items():
            values.setdefault(label, {}).update(dict.fromkeys(wanted))
    for label in spread & values.keys():
        if any(one.spread_over == label and label not in one.node_labels for one in spec.placement_requests.values()):
            values[label][None] = None
    return (dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values()))


def _trimmed(problem: Problem, placement: Placement) -> ClusterView:
    """As many equal nodes as the job may use, with what the fullest needs, in whole numbers."""
    spec, used = problem.spec, problem.amounts_on_nodes(placement.node_units)
    fullest = [max(amounts) for amounts in zip(*used.values(), strict=True)]
    free = {
        name: float(math.ceil(amount_of(steps)))
        for name, steps in zip(problem.resources, fullest, strict=True)
        if steps or name == "CPU"
    }
    free[spec.device_type] = max(free.get(spec.device_type, 0.0), float(spec.device_per_node))
    chosen = {*used, *(spare.node for spare in placement.spares)}
    others = (node for node in range(len(problem.nodes)) if node not in chosen)
    chosen.update(list(itertools.islice(others, spec.node_num + spec.spare_nodes - len(chosen))))
    labels = [problem.nodes[node].labels for node in sorted(chosen)]
    return ClusterView(nodes=_equal_nodes(free, labels))


def _equal_nodes(free: Mapping[str, float], labels: Iterable[Mapping[str, str]]) -> tuple[NodeView, ...]:
    return tuple(NodeView(node_id=f"node-{index}", free=free, labels=one) for index, one in enumerate(labels))


def separate_sync(spec: JobSpec) -> JobSpec:
    """The spec as it is: roles have devices of their own, except those the user collocated."""
    return spec


def colocate_sync(spec: JobSpec) -> JobSpec:
    """The spec with all roles on shared devices, unless the user said which roles share."""
    names = tuple(spec.placement_requests)
    if spec.with_collocation or len(names) < 2:
        return spec
    return spec.model_copy(update={"with_collocation": (names,)})
