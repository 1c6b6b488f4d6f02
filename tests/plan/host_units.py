"""What must be on one node together, worked out from the job's words alone, for tests that must not ask the planner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dlrl_core.plan import ClusterView, NodeView
from dlrl_core.spec import JobSpec, PlacementRequest


@dataclass(frozen=True, kw_only=True)
class HostUnit:
    """One rank of the smallest role of a host collocation, and its block of each other one."""

    seats: dict[str, int]
    """Workloads of each role or part in one unit."""
    wanted: int
    fewest: int
    per_node: int | None
    needs: Mapping[str, int]
    """In steps of 1/10,000, devices whole."""
    placement_requests: tuple[PlacementRequest, ...]

    @property
    def first(self) -> str:
        return min(self.seats, key=lambda name: self.seats[name])

    @property
    def step(self) -> int:
        return self.per_node or 1

    def is_allowed_on(self, node: NodeView) -> bool:
        keys = {key for one in self.placement_requests for key in (one.spread_over, one.pack_into) if key}
        return all(key in node.labels for key in keys) and all(
            node.labels.get(label) in values
            for one in self.placement_requests
            for label, values in one.node_labels.items()
        )

    def pack_values(self, node: NodeView) -> tuple[str | None, ...]:
        keys = sorted({one.pack_into for one in self.placement_requests if one.pack_into})
        return tuple(node.labels.get(key) for key in keys)

    def fits(self, spec: JobSpec, node: NodeView) -> int:
        """How many an otherwise empty node takes."""
        have = usable(spec, node)
        return min((have.get(name, 0) // need for name, need in self.needs.items() if need), default=10**6)

    def spread_limits(
        self, spec: JobSpec, cluster: ClusterView, partition: tuple[str | None, ...], units: int
    ) -> dict[str, int]:
        """Of each label to spread over, the most units on nodes with one value of it."""
        nodes = [
            node
            for node in cluster.nodes
            if self.is_allowed_on(node) and self.pack_values(node) == partition and self.fits(spec, node) >= self.step
        ]
        limits = {}
        for key in {one.spread_over for one in self.placement_requests if one.spread_over}:
            domains = min(spec.node_num, len({node.labels[key] for node in nodes}))
            limits[key] = math.ceil(units // self.step / max(1, domains)) * self.step
        return limits


def usable(spec: JobSpec, node: NodeView) -> dict[str, int]:
    """What the job may take of a node, in steps: whole devices, no more than device_per_node."""
    have = {name: math.floor(amount * 10_000 + 1e-6) for name, amount in node.free.items()}
    devices = min(spec.device_per_node, math.floor(node.free.get(spec.device_type, 0)))
    return {**have, spec.device_type: devices * 10_000}


def host_units(spec: JobSpec) -> list[HostUnit]:
    """Of the whole job, each role and part in exactly one of them."""
    together = {name: {name} for name in spec.placement_requests}
    for group in (*spec.with_collocation, *spec.with_host_collocation):
        joined = set().union(*(together[name] for name in group))
        for name in joined:
            together[name] = joined
    found = []
    for name in spec.placement_requests:
        names = [one for one in spec.placement_requests if one in together[name]]
        if names[0] == name:
            found.append(_unit(spec, names))
    return found


def _unit(spec: JobSpec, names: list[str]) -> HostUnit:
    placement_requests = {name: spec.placement_requests[name] for name in names}
    units = min(one.total for one in placement_requests.values())
    seats = {name: one.total // units for name, one in placement_requests.items()}
    needs: Counter[str] = Counter()
    for name, count in seats.items():
        group = next((group for group in spec.with_collocation if name in group), (name,))
        for resource, amount in {"CPU": 1, **placement_requests[name].resource}.items():
            if resource != spec.device_type:
                needs[resource] += round(amount * 10_000) * count
        if group[0] == name:
            needs[spec.device_type] += _devices(spec, group) * count * 10_000
    return HostUnit(
        seats=seats,
        wanted=units,
        fewest=min(
            units if one.min_total is None else one.min_total // seats[name] for name, one in placement_requests.items()
        ),
        per_node=next((one.per_node // seats[name] for name, one in placement_requests.items() if one.per_node), None),
        needs=needs,
        placement_requests=tuple(placement_requests.values()),
    )


def _devices(spec: JobSpec, group: tuple[str, ...]) -> int:
    """One that they share, or the whole ones that a role asks for; none if nobody asks for any."""
    shares = [spec.placement_requests[name].resource.get(spec.device_type) for name in group]
    if None in shares:
        return 1
    return math.ceil(round(sum(shares), 3))
