"""All placements of a small job, tried one by one: slow, and plain enough to believe."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from host_units import HostUnit, host_units, usable

from dlrl_core.plan import ClusterView
from dlrl_core.spec import JobSpec

Counts = tuple[int, ...]
"""Units of one host group on each node."""


def can_be_placed(spec: JobSpec, cluster: ClusterView, units: tuple[int, ...]) -> bool:
    """Whether so many units of each host group have a place that keeps all rules."""
    return next(_placements(spec, cluster, units), None) is not None


def wished_units(spec: JobSpec) -> Iterator[tuple[int, ...]]:
    """All counts that the job would accept, what is wanted first."""
    ranges = [range(unit.wanted, unit.fewest - 1, -unit.step) for unit in host_units(spec)]
    return itertools.product(*ranges)


def _placements(spec: JobSpec, cluster: ClusterView, units: tuple[int, ...]) -> Iterator[list[Counts]]:
    groups = host_units(spec)
    ways = [list(_ways(spec, cluster, group, count)) for group, count in zip(groups, units, strict=True)]
    foes = _foes(spec, groups)
    for placed in _combined(spec, cluster, groups, ways, foes, []):
        if _has_spares(spec, cluster, groups, placed):
            yield placed


def _ways(spec: JobSpec, cluster: ClusterView, group: HostUnit, units: int) -> Iterator[Counts]:
    """All ways to seat one group on an empty cluster."""
    choices = [
        [count for count in (range(units + 1) if group.per_node is None else (0, group.per_node)) if count <= most]
        for most in (group.fits(spec, node) if group.is_allowed_on(node) else 0 for node in cluster.nodes)
    ]
    for counts in itertools.product(*choices):
        if sum(counts) == units and _labels_suit(spec, cluster, group, counts, units):
            yield counts


def _labels_suit(spec: JobSpec, cluster: ClusterView, group: HostUnit, counts: Counts, units: int) -> bool:
    used = [(node, count) for node, count in zip(cluster.nodes, counts, strict=True) if count]
    partitions = {group.pack_values(node) for node, _ in used}
    if len(partitions) != 1:
        return False
    for label, most in group.spread_limits(spec, cluster, partitions.pop(), units).items():
        for value in {node.labels[label] for node, _ in used}:
            if sum(count for node, count in used if node.labels[label] == value) > most:
                return False
    return True


def _foes(spec: JobSpec, groups: list[HostUnit]) -> set[tuple[int, int]]:
    def is_in(name: str, group: HostUnit) -> bool:
        return any(member == name or member.startswith(f"{name}.") for member in group.seats)

    return {
        (i, j)
        for separation in spec.without_collocation
        for one, other in itertools.permutations(separation, 2)
        for i, first in enumerate(groups)
        for j, second in enumerate(groups)
        if is_in(one, first) and is_in(other, second)
    }


def _combined(
    spec: JobSpec,
    cluster: ClusterView,
    groups: list[HostUnit],
    ways: list[list[Counts]],
    foes: set[tuple[int, int]],
    placed: list[Counts],
) -> Iterator[list[Counts]]:
    """All ways to seat the groups after those that are placed."""
    if len(placed) == len(groups):
        yield placed
        return
    for counts in ways[len(placed)]:
        after = [*placed, counts]
        if _is_legal(spec, cluster, groups, foes, after):
            yield from _combined(spec, cluster, groups, ways, foes, after)


def _is_legal(
    spec: JobSpec, cluster: ClusterView, groups: list[HostUnit], foes: set[tuple[int, int]], placed: list[Counts]
) -> bool:
    if sum(any(counts) for counts in zip(*placed, strict=True)) > spec.node_num:
        return False
    new = len(placed) - 1
    for index, node in enumerate(cluster.nodes):
        if not placed[new][index]:
            continue
        if any(placed[other][index] and (new, other) in foes for other in range(new)):
            return False
        have = usable(spec, node)
        if any(amount > have.get(name, 0) for name, amount in _taken(groups, placed, index).items()):
            return False
    return True


def _taken(groups: list[HostUnit], placed: list[Counts], node: int) -> dict[str, int]:
    taken: dict[str, int] = {}
    for group, counts in zip(groups, placed, strict=False):
        for name, need in group.needs.items():
            taken[name] = taken.get(name, 0) + need * counts[node]
    return taken


def _has_spares(spec: JobSpec, cluster: ClusterView, groups: list[HostUnit], placed: list[Counts]) -> bool:
    """Whether enough nodes are left over, each able to replace a used one, and each used one replaceable."""
    used = {index for index in range(len(cluster.nodes)) if any(counts[index] for counts in placed)}
    left = [index for index in range(len(cluster.nodes)) if index not in used]
    covers = {
        spare: {node for node in used if _can_replace(spec, cluster, groups, placed, node, spare)} for spare in left
    }
    return any(
        all(covers[spare] for spare in spares) and used == set().union(*(covers[spare] for spare in spares))
        for spares in itertools.combinations(left, spec.spare_nodes)
        if spares
    ) or (not spec.spare_nodes)


def _can_replace(
    spec: JobSpec, cluster: ClusterView, groups: list[HostUnit], placed: list[Counts], node: int, spare: int
) -> bool:
    have = usable(spec, cluster.nodes[spare])
    if any(amount > have.get(name, 0) for name, amount in _taken(groups, placed, node).items()):
        return False
    return all(
        group.is_allowed_on(cluster.nodes[spare])
        and group.pack_values(cluster.nodes[spare]) == group.pack_values(cluster.nodes[node])
        for group, counts in zip(groups, placed, strict=True)
        if counts[node]
    )
