"""What a job asks of a cluster, in whole numbers.

A *seat* is what rank i of every role of a device group shares: one device or several, or CPUs alone. A *unit* is
what must be on one node together: a seat, or, in a host group, one seat of the smallest device group and its share
of the others. The planner only decides how many units of each host group go to each node.

Ray counts resources in steps of 1/10,000, and so does the planner: a share of a device is kept as the exact fraction
that was meant, and the shares of a device are cut into steps whose sum is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

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
