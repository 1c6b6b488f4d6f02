"""What a job asks of a cluster, in the planner's numbers.

A *seat* is the place of rank i of every role of a device group: one device or several, or CPUs alone. A *unit* is
what must be on one node together: a seat, or, in a host group, one seat of the smallest device group and its share
of the others. The planner only ever decides how many units of each host group go to each node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dlrl_core.plan.amounts import STEPS, amount_of, cut, meant, needed_steps
from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec, PlacementRequest
from dlrl_core.spec.rules import host_groups, separated_pairs


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
    """How many each seat takes."""
    seat: Mapping[str, int]
    """What each seat reserves, in steps. Devices are reserved whole: nobody who did not ask shares them."""
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
    def shown(self) -> str:
        """The roles in a sentence, such as "role 'actor'" or "roles 'actor' + 'rollout'"."""
        names = [f"'{member.name}'" for group in self.groups for member in group.members]
        noun = "part" if "." in names[0] else "role"
        return f"{noun if len(names) == 1 else 'roles'} {' + '.join(names)}"

    @property
    def step(self) -> int:
        """Units come in multiples of this."""
        return self.units_per_node or 1


def demands_of(spec: JobSpec) -> tuple[HostGroupDemand, ...]:
    """What each host group of the job asks for. The spec has passed its rules."""
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
    """The share of each role of a device: what it named; who named nothing shares the rest evenly."""
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
