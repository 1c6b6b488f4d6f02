"""Which process on another node holds a copy of each rank's commits. The choice is a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import ray

from dlrl_core.trainer.workload_directory import WorkloadDirectory, WorkloadHandle
from dlrl_core.workload.state_keeper import Neighbour


def neighbours_of(
    stateful: Sequence[str], nodes: Mapping[str, str], domains: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, str]:
    """Of each stateful workload, a workload on the next node of another failure domain; where all nodes are of one
    domain, on the next node.

    `nodes` has the node of every workload, `domains` the domain of each node that has one, `before` the last choice,
    which stays where it is still right. A job on one node has no neighbours.
    """
    order = sorted(set(nodes.values()))
    next_nodes = {node: _next_nodes(node, order, domains) for node in order}
    targets = _targets(order, next_nodes)
    holders: dict[str, list[str]] = {node: [name for name, one in nodes.items() if one == node] for node in order}
    chosen: dict[str, str] = {}
    used: Counter[str] = Counter()
    for name in stateful:
        right = next_nodes[nodes[name]]
        if not right:
            continue
        last = before.get(name)
        is_kept = last is not None and nodes.get(last) in right
        target = holders[targets[nodes[name]]]
        chosen[name] = last if is_kept and last else min(target, key=lambda holder: used[holder])
        used[chosen[name]] += 1
    return chosen


def _targets(order: Sequence[str], next_nodes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Of each node, one of its next nodes, so that none holds the copies of more nodes than it must."""
    targets: dict[str, str] = {}
    used: Counter[str] = Counter()
    for node in order:
        if next_nodes[node]:
            targets[node] = min(next_nodes[node], key=lambda other: used[other])
            used[targets[node]] += 1
    return targets


def _next_nodes(node: str, order: Sequence[str], domains: Mapping[str, str]) -> list[str]:
    at = order.index(node)
    ring = [*order[at + 1 :], *order[:at]]
    own = domains.get(node, node)
    return [other for other in ring if domains.get(other, other) != own] or ring


class Neighbours:
    """The neighbours of all ranks, chosen again when processes were replaced."""

    def __init__(
        self, directory: WorkloadDirectory, stateful: Sequence[WorkloadHandle], *, is_on: bool, domain_label: str | None
    ) -> None:
        self._directory = directory
        self._stateful = [one.name for one in stateful]
        self._is_on = is_on
        self._domain_label = domain_label
        self._chosen: dict[str, str] = {}
        self._places: dict[str, tuple[str, str]] = {}
        """Of each rank, its neighbour and the node of that."""
        self._chosen_at = -1
        self._without: set[str] = set()
        """Ranks whose neighbour does not hold the last commit that counts, as far as is known."""
        self._failed: dict[str, str] = {}
        """Ranks whose neighbour could not copy a commit, and why: no commit waits for it again before it has one."""

    @property
    def is_on(self) -> bool:
        return self._is_on and len({one.node_id for one in self._directory.workloads}) > 1

    def of(self, name: str) -> Neighbour | None:
        """The neighbour of a rank; None if it has none."""
        if not self.is_on:
            return None
        self._choose()
        if name not in self._chosen:
            return None
        holder = self._directory.named(self._chosen[name])
        return Neighbour(name=holder.name, ray_actor=holder.ray_actor)

    def waited_for(self, name: str) -> Neighbour | None:
        """The neighbour for whose copy a commit of this rank waits before it counts."""
        return None if name in self._failed else self.of(name)

    @property
    def trouble(self) -> str | None:
        """Why there is no copy, in one sentence; None if there is."""
        return next((f"the commit of '{name}' has no copy: {why}" for name, why in self._failed.items()), None)

    def without_copy(self) -> list[str]:
        """Ranks of whose last commit no neighbour holds a copy."""
        if not self.is_on:
            return []
        self._choose()
        return [name for name in self._stateful if name in self._without]

    def heard(self, errors: Mapping[str, str | None], *, is_last: bool, is_waited_for: bool) -> None:
        """What became of the copies of these ranks' commit: is it the last that counts, and did it wait for them?"""
        for name, error in errors.items():
            if error is not None:
                self._without.add(name)
                if is_waited_for or name in self._failed:
                    self._failed[name] = error
                continue
            self._failed.pop(name, None)
            if is_last:
                self._without.discard(name)

    def forget(self) -> None:
        """Training went back: whether the neighbours hold copies of the commit gone back to is not known."""
        self._without = set(self._stateful)
        self._failed = {}

    def _choose(self) -> None:
        if self._chosen_at == self._directory.version:
            return
        self._chosen_at = self._directory.version
        nodes = {one.name: one.node_id for one in self._directory.workloads}
        self._chosen = neighbours_of(self._stateful, nodes, self._domains(), self._chosen)
        before, self._places = self._places, {name: (holder, nodes[holder]) for name, holder in self._chosen.items()}
        changed = {name for name, place in self._places.items() if before.get(name, place) != place}
        self._without |= changed
        self._failed = {name: why for name, why in self._failed.items() if name not in changed}

    def _domains(self) -> dict[str, str]:
        if self._domain_label is None:
            return {}
        labels = {node["NodeID"]: node.get("Labels", {}).get(self._domain_label) for node in ray.nodes()}
        return {node: label for node, label in labels.items() if label is not None}
