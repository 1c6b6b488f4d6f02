"""What a job asks for, and what a cluster has, in the form that the search works on."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dlrl_core.plan.cluster_view import ClusterView, NodeView
from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec, PlacementRequest
from dlrl_core.spec.rules import host_groups, separated_pairs

STEPS = 10_000
PLENTY = 10**24
"""Steps of a resource that a described cluster has without limit."""


def meant(amount: float) -> Fraction:
    """The fraction that a number stands for: 0.3333333333333333 is a third."""
    return Fraction(amount).limit_denominator(STEPS)


def needed_steps(amount: float) -> int:
    """A requested amount in steps, rounded up."""
    return math.ceil(round(amount * STEPS, 3))


def free_steps(amount: float) -> int:
    """An available amount in steps, rounded down."""
    return PLENTY if math.isinf(amount) else math.floor(round(amount * STEPS, 3))


def amount_of(steps: int) -> float:
    return steps / STEPS


def cut(shares: Sequence[Fraction]) -> list[int]:
    """The shares of one device in steps, with an exact sum: the remainder goes to those that lost most by rounding."""
    whole = [math.floor(share * STEPS) for share in shares]
    over = math.floor(sum(shares) * STEPS) - sum(whole)
    shortest = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i] * STEPS, i))
    for index in shortest[:over]:
        whole[index] += 1
    return whole


@dataclass(frozen=True, kw_only=True)
class MemberDemand:
    """One role, or part of a role, within its device group."""

    name: str
    role: RoleType
    part: str | None
    share: Fraction
    resources: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class DeviceGroupDemand:
    """Roles that share devices."""

    members: tuple[MemberDemand, ...]
    devices: int
    """Devices of each seat."""
    seat: Mapping[str, int]
    """What each seat reserves, in steps. Devices are reserved whole: only the roles of this group share them."""
    seats_per_unit: int


@dataclass(frozen=True, kw_only=True)
class HostGroupDemand:
    """Device groups that share nodes."""

    groups: tuple[DeviceGroupDemand, ...]
    units: int
    min_units: int
    units_per_node: int | None
    unit: Mapping[str, int]
    labels: Mapping[str, frozenset[str]]
    spread_over: tuple[str, ...]
    pack_into: tuple[str, ...]
    foes: frozenset[int]
    """Host groups, by their index, that must not be on the same node."""

    @property
    def names(self) -> list[str]:
        """The roles, or parts of roles, in it."""
        return [member.name for group in self.groups for member in group.members]

    @property
    def shown(self) -> str:
        """The roles in a sentence, such as "role 'actor'" or "roles 'actor' + 'rollout'"."""
        names = [f"'{name}'" for name in self.names]
        noun = "part" if "." in names[0] else "role"
        return f"{noun if len(names) == 1 else 'roles'} {' + '.join(names)}"

    @property
    def step(self) -> int:
        """Units come in multiples of this."""
        return self.units_per_node or 1


def demands_of(spec: JobSpec) -> tuple[HostGroupDemand, ...]:
    """What each host group of a checked job asks for."""
    groups = host_groups(spec)
    pairs = separated_pairs(spec)
    members = [[name for devices in group for name in devices] for group in groups]
    return tuple(
        _host_group(
            spec,
            group,
            foes=frozenset(
                other
                for other, names in enumerate(members)
                if any((one, two) in pairs for one in members[index] for two in names)
            ),
        )
        for index, group in enumerate(groups)
    )


def _host_group(spec: JobSpec, group: tuple[tuple[str, ...], ...], foes: frozenset[int]) -> HostGroupDemand:
    placement_requests = [spec.placement_requests[devices[0]] for devices in group]
    units = min(request.total for request in placement_requests)
    sizes = [request.total // units for request in placement_requests]
    demands = tuple(_device_group(spec, devices, size) for devices, size in zip(group, sizes, strict=True))
    wishes = [spec.placement_requests[name] for devices in group for name in devices]
    min_totals = [request.min_total for request in placement_requests]
    return HostGroupDemand(
        groups=demands,
        units=units,
        min_units=min(
            units if fewest is None else math.ceil(fewest / size)
            for fewest, size in zip(min_totals, sizes, strict=True)
        ),
        units_per_node=next(
            (one.per_node // size for one, size in zip(placement_requests, sizes, strict=True) if one.per_node), None
        ),
        unit=_sum([(demand.seat, demand.seats_per_unit) for demand in demands]),
        labels=_labels(wishes),
        spread_over=tuple(dict.fromkeys(wish.spread_over for wish in wishes if wish.spread_over)),
        pack_into=tuple(dict.fromkeys(wish.pack_into for wish in wishes if wish.pack_into)),
        foes=foes,
    )


def _device_group(spec: JobSpec, names: tuple[str, ...], seats_per_unit: int) -> DeviceGroupDemand:
    shares = _shares([spec.placement_requests[name].resource.get(spec.device_type) for name in names])
    if len(names) > 1 and spec.device_type != "CPU" and sum(shares) > 1:
        shares = [share / sum(shares) for share in shares]  # 0.3334 three times is meant to be one device
    pieces = cut(shares)
    members = tuple(
        _member(name, spec.placement_requests[name], spec.device_type, share, piece)
        for name, share, piece in zip(names, shares, pieces, strict=True)
    )
    devices = math.ceil(Fraction(sum(pieces), STEPS))
    seat = _sum([({key: needed_steps(amount) for key, amount in one.resources.items()}, 1) for one in members])
    if devices:
        seat[spec.device_type] = devices * STEPS
    return DeviceGroupDemand(members=members, devices=devices, seat=seat, seats_per_unit=seats_per_unit)


def _shares(named: list[float | None]) -> list[Fraction]:
    """Each role's share of a device: the one it names; roles that name none share the rest evenly."""
    rest = max(Fraction(0), 1 - sum((meant(share) for share in named if share is not None), Fraction(0)))
    unnamed = sum(share is None for share in named)
    return [meant(share) if share is not None else rest / unnamed for share in named]


def _member(name: str, request: PlacementRequest, device_type: str, share: Fraction, piece: int) -> MemberDemand:
    role, _, part = name.partition(".")
    asked = {"CPU": 1.0, **request.resource, device_type: amount_of(piece)}
    return MemberDemand(
        name=name,
        role=RoleType(role),
        part=part or None,
        share=share,
        resources={key: amount_of(needed_steps(amount)) for key, amount in asked.items()},
    )


def _sum(amounts: list[tuple[Mapping[str, int], int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one, times in amounts:
        for name, steps in one.items():
            total[name] = total.get(name, 0) + steps * times
    return {name: steps for name, steps in total.items() if steps}


def _labels(wishes: list[PlacementRequest]) -> dict[str, frozenset[str]]:
    labels: dict[str, frozenset[str]] = {}
    for wish in wishes:
        for label, values in wish.node_labels.items():
            labels[label] = labels.get(label, frozenset(values)) & frozenset(values)
    return labels


Amounts = tuple[int, ...]
"""Steps of each resource, in the order of the problem's resources; the first are the devices."""

NodeUnits = list[tuple[int, int]]
"""Where the units of one host group are: (node, units), by ascending node."""


@dataclass(frozen=True, kw_only=True)
class Spare:
    """A node that is held back."""

    node: int
    amounts: Amounts
    replaces: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The answer: a node for each unit, and the spare nodes."""

    units: tuple[int, ...]
    """Of each host group; fewer than wanted if it is elastic."""
    node_units: tuple[NodeUnits, ...]
    """Of each host group, its units on each node."""
    spares: tuple[Spare, ...]


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """No placement exists, or none was found."""

    group: int | None
    """The host group that did not fit; None if spare nodes are missing."""
    others: tuple[int, ...] = ()
    """The host groups that were placed before it; as far as is known, it would fit without them."""
    resource: int | None = None
    """The resource of which the group and the others together need more than the nodes have; None if none was seen."""
    used: int = 0
    """How many nodes the groups placed so far use."""
    is_certain: bool
    """True: no placement exists. False: the search was given up."""


class Problem:
    """A job and a cluster in numbers; made once, solved for different counts of units."""

    def __init__(self, spec: JobSpec, cluster: ClusterView, *, patience: int = 200_000) -> None:
        self.spec = spec
        self.patience = patience
        """How many steps a search may take."""
        self.nodes: tuple[NodeView, ...] = cluster.nodes
        self.groups: tuple[HostGroupDemand, ...] = demands_of(spec)
        others = {name for group in self.groups for name in group.unit} - {spec.device_type}
        self.resources: tuple[str, ...] = (spec.device_type, *sorted(others))
        self.node_num = spec.node_num
        self.spare_nodes = spec.spare_nodes
        self.most_nodes = max(0, min(spec.node_num, len(cluster.nodes) - spec.spare_nodes))
        """The job may use this many nodes at most: the spare ones must remain."""
        self.needs: tuple[Amounts, ...] = tuple(
            tuple(group.unit.get(name, 0) for name in self.resources) for group in self.groups
        )
        caps = functools.cache(self._caps)
        self.caps: tuple[Amounts, ...] = tuple(caps(tuple(node.free.items())) for node in cluster.nodes)
        """What the job could use of each node if nothing else was placed there."""
        self.eligible: tuple[Sequence[int], ...] = tuple(self._eligible(group) for group in self.groups)
        self.partitions: tuple[list[Sequence[int]], ...] = tuple(map(self._partitions, range(len(self.groups))))
        """Of each group, the sets of nodes it may be packed into: each set has one value of the labels to pack into."""
        self.wanted: tuple[int, ...] = tuple(group.units for group in self.groups)

    def _caps(self, free: tuple[tuple[str, float], ...]) -> Amounts:
        """The usable part of a node: whole devices up to device_per_node, and other resources that go with them.

        The rest is cut off, so that nodes that make no difference to the job are equal, and are tried once.
        """
        have = dict(free)
        steps = [free_steps(have.get(name, 0)) for name in self.resources]
        devices = min(self.spec.device_per_node * STEPS, steps[0] // STEPS * STEPS)
        return (devices, *(min(steps[r], self._useful(r, devices)) for r in range(1, len(steps))))

    def _useful(self, resource: int, devices: int) -> int:
        """The most of a resource that units with this many devices need, plus all units without a device."""
        with_devices = max((-(-need[resource] * devices // need[0]) for need in self.needs if need[0]), default=0)
        without = [(group.units, need) for group, need in zip(self.groups, self.needs, strict=True) if not need[0]]
        return with_devices + sum(units * need[resource] for units, need in without)

    def _eligible(self, group: HostGroupDemand) -> Sequence[int]:
        """The nodes whose labels suit the group; one that is spread or packed over a label needs to have it."""
        keys = (*group.spread_over, *group.pack_into)
        if not group.labels and not keys:
            return range(len(self.nodes))
        return [
            index
            for index, node in enumerate(self.nodes)
            if all(node.labels.get(label) in values for label, values in group.labels.items())
            and all(key in node.labels for key in keys)
        ]

    def _partitions(self, group: int) -> list[Sequence[int]]:
        keys = self.groups[group].pack_into
        if not keys:
            return [self.eligible[group]]
        found: dict[tuple[str, ...], list[int]] = {}
        for index in self.eligible[group]:
            found.setdefault(tuple(self.nodes[index].labels[key] for key in keys), []).append(index)
        return [found[values] for values in sorted(found)]

    @functools.cached_property
    def _partition_indices(self) -> list[dict[int, int]]:
        return [
            {node: index for index, nodes in enumerate(partitions) for node in nodes} for partitions in self.partitions
        ]

    def partition_of(self, group: int, node: int) -> int | None:
        """Which of the group's partitions the node is in; None if the group may not use the node."""
        return self._partition_indices[group].get(node)

    def spread_caps(self, group: int, nodes: Sequence[int], units: int) -> dict[str, int]:
        """For each label the group is spread over: how many of its units may be on nodes with one value of it."""
        demand = self.groups[group]
        caps = {}
        for key in demand.spread_over:
            values = {self.nodes[n].labels[key] for n in nodes if self.fit(group, self.caps[n]) >= demand.step}
            domains = max(1, min(len(values), self.node_num))
            caps[key] = math.ceil(units / demand.step / domains) * demand.step
        return caps

    @functools.cached_property
    def rooms(self) -> tuple[int, ...]:
        """An upper bound: how many units of each group would fit if it was alone and had no rule of spreading."""
        return tuple(
            max((self._room(index, nodes) for nodes in partitions), default=0)
            for index, partitions in enumerate(self.partitions)
        )

    def _room(self, group: int, nodes: Sequence[int]) -> int:
        step, most = self.groups[group].units_per_node, self.groups[group].units
        fits = {caps: min(most, self.fit(group, caps)) for caps in {self.caps[node] for node in nodes}}
        rooms = sorted((fits[self.caps[node]] for node in nodes), reverse=True)[: self.most_nodes]
        return sum(step for room in rooms if room >= step) if step else sum(rooms)

    @functools.cached_property
    def largest(self) -> Amounts:
        """Of each resource, the sum over the nodes that have the most of it, as many nodes as the job may use."""
        return tuple(
            sum(sorted((caps[index] for caps in self.caps), reverse=True)[: self.most_nodes])
            for index in range(len(self.resources))
        )

    def fit(self, group: int, left: Amounts) -> int:
        """How many units of the group fit into what is left of a node."""
        return min((have // need for have, need in zip(left, self.needs[group], strict=True) if need), default=math.inf)  # type: ignore[return-value]

    def amounts_on_nodes(self, node_units: Sequence[NodeUnits]) -> dict[int, Amounts]:
        """What the units of all groups take of each node that has any."""
        used: dict[int, list[int]] = {}
        for need, units in zip(self.needs, node_units, strict=True):
            for node, count in units:
                have = used.setdefault(node, [0] * len(need))
                for index, one in enumerate(need):
                    have[index] += count * one
        return {node: tuple(have) for node, have in used.items()}
