"""The smallest cluster that a job fits: what an embedded local Ray is shaped like."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from dlrl_core.errors import PlanError
from dlrl_core.plan.amounts import amount_of
from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.plan.problem import Amounts, Placement, Problem, Stuck
from dlrl_core.plan.shortage import shortage
from dlrl_core.plan.solve import solve
from dlrl_core.spec import JobSpec

Labels = dict[str, str | None]
"""None: another value on each node."""


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
    return ClusterView(
        nodes=tuple(NodeView(node_id=f"node-{index}", free=free, labels=one) for index, one in enumerate(labels))
    )


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
    spec = problem.spec
    used = _used(problem, placement)
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
    return ClusterView(
        nodes=tuple(
            NodeView(node_id=f"node-{index}", free=free, labels=problem.nodes[node].labels)
            for index, node in enumerate(sorted(chosen))
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
