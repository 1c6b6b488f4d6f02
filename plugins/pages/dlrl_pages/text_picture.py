"""A plan as text: the picture of its nodes and devices, the rows of its table, and the words that all pictures use.

Lines of the picture are pieces that know their role, so that the command line can colour them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from dlrl_core.roles import RoleType
from dlrl_pages.layout import DrawnNode, Layout, Ranges, Row, counted, layout_of, merged
from dlrl_pages.state_on_nodes import state_rows, state_sentence

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan, MemberPlan, SpareNode

_MOST_RANGES = 4
_WIDTH = 100
_MOST_ROWS = 48
_DEVICE = 40
"""How wide a device is, unless the names on it need more."""


class Piece(NamedTuple):
    """Some text of a line."""

    text: str
    role: RoleType | None = None
    is_heading: bool = False


Line = list[Piece]


def picture_of(plan: ExecutionPlan) -> str:
    """The picture and, where they are known, what each role's death restarts and how large its state is."""
    lines = picture_lines(plan)
    for more in (death_lines(plan), state_lines(plan)):
        lines += [[], *more] if more else []
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)


def picture_lines(plan: ExecutionPlan, width: int = _WIDTH) -> list[Line]:
    """At most a few dozen lines, whatever the plan; devices are not wider than `width`, unless a single name is."""
    layout = layout_of(plan, _MOST_ROWS)
    lines = [[Piece(headline(plan), is_heading=True), Piece(f": {', '.join(role_counts(plan).values())}")]]
    rows = [row for node in layout.nodes for row in node.rows]
    margin = max((len(place_of(row, plan.device_type)) for row in rows), default=0) + 4
    bars = _Bars(rows, width - margin)
    for node in layout.nodes:
        lines.append([Piece(f"node {node.node}", is_heading=True), Piece(f" ({plan.nodes[node.node].shown})")])
        for row in node.rows:
            place = f"  {place_of(row, plan.device_type)}".ljust(margin)
            lines += _after(place, bars.lines(row) if row.devices else [[Piece(", ".join(without_device(row)))]])
        lines += _others(node)
    return [*lines, *_left_out(layout), *([Piece(line)] for line in spare_lines(plan))]


def death_lines(plan: ExecutionPlan) -> list[Line]:
    """A line for each role: what its death would restart; none where that is not known."""
    if not plan.deaths:
        return []
    width = max(map(len, plan.deaths), default=0)
    return [
        [Piece("when one dies", is_heading=True)],
        *([Piece(f"  {role:<{width}}  {what}")] for role, what in plan.deaths.items()),
    ]


def state_lines(plan: ExecutionPlan) -> list[Line]:
    """A line for each role with a state: how large it is on a rank and on a node; and what a node needs for all."""
    if not plan.state_sizes:
        return []
    rows = [("", "a rank", "a node", ""), *state_rows(plan)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [[Piece("state of a commit", is_heading=True)]]
    for *cells, derivation in rows:
        shown = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append([Piece("  " + "  ".join([*shown, derivation]))])
    return [*lines, [Piece(f"  {state_sentence(plan)}")]]


def _after(place: str, lines: Sequence[Line]) -> list[Line]:
    return [[Piece(" " * len(place) if number else place), *line] for number, line in enumerate(lines)]


def _others(node: DrawnNode) -> list[Line]:
    """One line for the nodes that are like this one, with their workloads."""
    if not node.others:
        return []
    who = [workloads_of(member, seats) for group, seats in node.others_seats for member in group.members]
    return [[Piece(shown_nodes(node.others), is_heading=True), Piece(f": as node {node.node}, with {', '.join(who)}")]]


def _left_out(layout: Layout) -> list[Line]:
    if not layout.left_out_nodes:
        return []
    nodes, workloads = how_many(layout.left_out_nodes, "more node"), how_many(layout.left_out_workloads, "workload")
    return [[Piece(f"... and {nodes} with {workloads}, each unlike those above")]]


class _Bars:
    """Devices as bars of one length that are cut by share; cells of the same group stand below each other."""

    def __init__(self, rows: Sequence[Row], room: int) -> None:
        least: dict[int, list[int]] = {}
        shares = {}
        for row in rows:
            if row.devices:
                cells, key = cells_of(row), id(row.group)
                known = least.get(key, [0] * len(cells))
                least[key] = [max(width, len(cell.label) + 3) for width, cell in zip(known, cells, strict=True)]
                shares[key] = [cell.share for cell in cells]
        self._is_stacked = {key for key, widths in least.items() if sum(widths) >= room}
        lengths = [max(widths) if key in self._is_stacked else sum(widths) for key, widths in least.items()]
        self._length = max(_DEVICE, *lengths, 0)
        self._widths = {key: fitted(widths, shares[key], self._length) for key, widths in least.items()}

    def lines(self, row: Row) -> list[Line]:
        """The bar of one row: one line, or where that has no room, one for each cell."""
        cells, key = cells_of(row), id(row.group)
        if key in self._is_stacked:
            return [[Piece("|"), _cell(cell, self._length), Piece("|")] for cell in cells]
        drawn = [_cell(cell, width) for cell, width in zip(cells, self._widths[key], strict=True)]
        return [[piece for cell in drawn for piece in (Piece("|"), cell)] + [Piece("|")]]


def _cell(cell: Cell, width: int) -> Piece:
    """`width` counts the line on the left of the cell."""
    return Piece(f" {cell.label}".ljust(width - 1), cell.role)


class TableRow(NamedTuple):
    """One workload; the names of the fields are those of the columns."""

    workload: str
    node: str
    device: str
    share: str
    """Of each of its devices."""
    resources: str
    collocated_with: str


def table_rows(plan: ExecutionPlan, most: int) -> list[TableRow]:
    """All workloads, or the first of them, role by role in rank order."""
    found = []
    for row in plan.rows(most):
        devices = merged(range(device, device + 1) for device in row["devices"])
        found.append(
            TableRow(
                workload=with_part(row["workload"], row["part"]),
                node=row["node"],
                device=f"{plan.device_type} {shown_ranges(devices)}" if devices else "none",
                share=shown_share(Fraction(row["share"]) / len(row["devices"])) if devices else "",
                resources=shown_amounts(row["resources"]),
                collocated_with=", ".join(row["collocated_with"]),
            )
        )
    return found


class Cell(NamedTuple):
    """A share of a device, or of the devices of a seat, and the workload that has it."""

    role: RoleType | None
    """None for an unused share."""
    name: str
    part: str | None
    share: Fraction

    @property
    def label(self) -> str:
        return f"{with_part(self.name, self.part)} {shown_share(self.share)}"


def cells_of(row: Row) -> list[Cell]:
    """The workloads on the devices of a row, each with its share; an unused share comes last."""
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
    """The workloads of a row without devices, such as 'reward-0..3 (each 1 CPU)'; one text for each role."""
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
    """A length cut by share, each piece at least as long as it needs; the sum exceeds `total` if that is needed."""
    spare = max(0, total - sum(least))
    wants = [max(Fraction(0), share * total - need) for share, need in zip(shares, least, strict=True)]
    wants = wants if any(wants) else [Fraction(1)] * len(least)
    sizes = [need + int(spare * want / sum(wants)) for need, want in zip(least, wants, strict=True)]
    for index in range(max(0, total - sum(sizes))):
        sizes[index] += 1
    return sizes
