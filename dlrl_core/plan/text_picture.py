"""A plan as text: nodes, their devices, and who sits on each with which share.

Lines are pieces that know their role, so that the command line can colour them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlrl_core.plan.picture_layout import DrawnNode, Layout, Row, layout_of
from dlrl_core.plan.picture_words import (
    Cell,
    cells_of,
    fitted,
    headline,
    how_many,
    place_of,
    role_counts,
    shown_nodes,
    spare_lines,
    without_device,
    workloads_of,
)
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan

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
    """The picture and, where it is known, what each role's death restarts."""
    lines = picture_lines(plan)
    if plan.deaths:
        lines += [[], *death_lines(plan)]
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
    """A line for each role: what its death would restart."""
    width = max(map(len, plan.deaths), default=0)
    return [
        [Piece("when one dies", is_heading=True)],
        *([Piece(f"  {role:<{width}}  {what}")] for role, what in plan.deaths.items()),
    ]


def _after(place: str, lines: Sequence[Line]) -> list[Line]:
    return [[Piece(" " * len(place) if number else place), *line] for number, line in enumerate(lines)]


def _others(node: DrawnNode) -> list[Line]:
    """The nodes that are alike, in one line, and who is on them."""
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
