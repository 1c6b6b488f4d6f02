"""The words that all pictures of a plan use: names, shares, places, ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from dlrl_core.plan.picture_layout import Ranges, Row, counted, merged
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan, MemberPlan, SpareNode

_MOST_RANGES = 4


class Cell(NamedTuple):
    """A piece of a device, or of the devices of a seat: who has it, and how much that is."""

    role: RoleType | None
    """None where nobody has it."""
    name: str
    part: str | None
    share: Fraction

    @property
    def label(self) -> str:
        return f"{with_part(self.name, self.part)} {shown_share(self.share)}"


def cells_of(row: Row) -> list[Cell]:
    """Who sits on the devices of a row, each with its share of them; what nobody has comes last."""
    members = row.group.members
    shares = [Fraction(member.share) / row.group.devices_per_seat for member in members]
    cells = [
        Cell(member.role, shown_ranks(member, (row.seat_range,)), member.part, share)
        for member, share in zip(members, shares, strict=True)
    ]
    unused = 1 - sum(shares, Fraction(0))
    return [*cells, Cell(None, "unused", None, unused)] if unused > 0 else cells


def shown_share(share: str | Fraction) -> str:
    """A share as it is shown: '50%', and '1/3' where a percentage would not be exact."""
    fraction = Fraction(share)
    hundred = fraction * 100
    return f"{hundred}%" if hundred.denominator == 1 else str(fraction)


def with_part(name: str, part: str | None) -> str:
    return f"{name} ({part})" if part else name


def shown_ranks(member: MemberPlan, seats: Ranges) -> str:
    """Its workloads on these seats, such as 'actor-3', 'actor-0..7' or 'actor-0..7, 16..23'."""
    first = member.first_rank
    return f"{member.role}-{shown_ranges(tuple(range(s.start + first, s.stop + first) for s in seats), '..')}"


def workloads_of(member: MemberPlan, seats: Ranges) -> str:
    """The same with the part, such as 'rollout-2 (decode)'."""
    return with_part(shown_ranks(member, seats), member.part)


def shown_ranges(ranges: Ranges, to: str = "-") -> str:
    """Numbers, such as '0', '0-3' or '0-3, 8'; of many ranges the first ones, and how many numbers follow."""
    shown = [str(one.start) if len(one) == 1 else f"{one.start}{to}{one[-1]}" for one in ranges[:_MOST_RANGES]]
    more = counted(ranges[_MOST_RANGES:])
    return ", ".join(shown) + (f" and {more} more" if more else "")


def shown_nodes(nodes: Ranges) -> str:
    return f"node{'s' * (counted(nodes) != 1)} {shown_ranges(nodes)}"


def place_of(row: Row, device_type: str) -> str:
    """The devices of a row, such as 'GPU 0', 'GPU 0-3 together', 'GPU 0-7 each', 'GPU 0-7, 4 together'."""
    if not row.devices:
        return "no device"
    width = row.group.devices_per_seat
    place = f"{device_type} {shown_ranges((row.devices,))}"
    if row.seats == 1:
        return place if width == 1 else f"{place} together"
    return f"{place} each" if width == 1 else f"{place}, {width} together"


def without_device(row: Row) -> list[str]:
    """Who sits in a row without devices, such as 'reward-0..3 (each 1 CPU)'; one text for each role."""
    each = "each " if row.seats > 1 else ""
    found = [(workloads_of(member, (row.seat_range,)), shown_amounts(member.resources)) for member in row.group.members]
    return [f"{names} ({each}{amounts})" if amounts else names for names, amounts in found]


def shown_amounts(resources: Mapping[str, float]) -> str:
    """Resources, such as '4 CPU, 0.5 GPU'; those of which there is nothing are left out."""
    return ", ".join(f"{amount:.10g} {name}" for name, amount in resources.items() if amount)


def how_many(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def workload_count(plan: ExecutionPlan) -> int:
    return sum(group.seats * len(group.members) for group in plan.groups)


def headline(plan: ExecutionPlan) -> str:
    """Such as '16 workloads on 1 node, 8 GPU devices'."""
    return (
        f"{how_many(workload_count(plan), 'workload')} on {how_many(len(plan.nodes), 'node')}, "
        f"{how_many(plan.device_count, f'{plan.device_type} device')}"
    )


def role_counts(plan: ExecutionPlan) -> dict[RoleType, str]:
    """How many workloads each role has, such as '2 actor' or '6 rollout (2 prefill, 4 decode)'."""
    members = sorted(
        ((member, group.seats) for group in plan.groups for member in group.members), key=lambda one: one[0].first_rank
    )
    return {
        role: with_part(
            f"{next(member.world_size for member, _ in members if member.role is role)} {role}",
            ", ".join(f"{seats} {member.part}" for member, seats in members if member.role is role and member.part),
        )
        for role in plan.roles
    }


def spare_lines(plan: ExecutionPlan) -> list[str]:
    """A sentence for each kind of spare nodes: which they are, what they can replace, what is held on each."""
    kinds: dict[tuple[tuple[int, ...], str], list[SpareNode]] = {}
    for spare in plan.spares:
        kinds.setdefault((spare.replaces, shown_amounts(spare.resources)), []).append(spare)
    return [
        f"{how_many(len(spares), 'spare node')} ({_some([spare.shown for spare in spares])}): "
        f"can replace {shown_nodes(merged(range(node, node + 1) for node in replaces))}, "
        f"{'each ' * (len(spares) > 1)}holds {amounts}"
        for (replaces, amounts), spares in kinds.items()
    ]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_RANGES
    return ", ".join(names[:_MOST_RANGES]) + (f" and {more} more" if more > 0 else "")


def fitted(least: Sequence[int], shares: Sequence[Fraction], total: int) -> list[int]:
    """A length cut by share, where each piece has at least what it needs; longer than `total` if that is needed."""
    spare = max(0, total - sum(least))
    wants = [max(Fraction(0), share * total - need) for share, need in zip(shares, least, strict=True)]
    wants = wants if any(wants) else [Fraction(1)] * len(least)
    sizes = [need + int(spare * want / sum(wants)) for need, want in zip(least, wants, strict=True)]
    for index in range(max(0, total - sum(sizes))):
        sizes[index] += 1
    return sizes
