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
    headline,
    how_many,
    place_of,
    role_counts,
    shown_nodes,
    shown_ranks,
    spare_lines,
    with_part,
    without_device,
)
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan, GroupPlan

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
    """At most a few dozen lines, whatever the plan; wider than `width` only where a single name is."""
    layout = layout_of(plan, _MOST_ROWS)
    roles = ", ".join(f"{count} {role}" for role, count in role_counts(plan).items())
    lines = [[Piece(headline(plan), is_heading=True), Piece(f": {roles}")]]
    rows = [row for node in layout.nodes for row in node.rows]
    margin = max((len(place_of(row, plan.device_type)) for row in rows), default=0) + 4
    bars = _Bars(rows, width - margin)
    for node in layout.nodes:
        lines.append([Piece(f"node {node.index}", is_heading=True), Piece(f" ({plan.nodes[node.index].shown})")])
        for row in node.rows:
            place = f"  {place_of(row, plan.device_type)}".ljust(margin)
            lines += _after(place, bars.lines(row) if row.devices else [_without_device(row)])
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
    return [[Piece(place if not number else " " * len(place)), *line] for number, line in enumerate(lines)]


def _without_device(row: Row) -> Line:
    line: Line = []
    for member, text in without_device(row):
        line += [Piece(", ")] * bool(line) + [Piece(text)]
    return line


def _others(node: DrawnNode) -> list[Line]:
    """The nodes that are drawn only once, and who is on them."""
    if not node.others:
        return []
    who = ", ".join(
        with_part(shown_ranks(member, tuple(range(s.start + first, s.stop + first) for s in seats)), member.part)
        for group, seats in node.others_seats
        for member in group.members
        for first in [member.first_rank]
    )
    return [[Piece(shown_nodes(node.others), is_heading=True), Piece(f": as node {node.index}, with {who}")]]


def _left_out(layout: Layout) -> list[Line]:
    if not layout.left_out_nodes:
        return []
    nodes, workloads = how_many(layout.left_out_nodes, "node"), how_many(layout.left_out_workloads, "workload")
    return [[Piece(f"... and {nodes} more, with {workloads}, each unlike those above")]]


class _Bars:
    """Devices as bars that are cut by share; cells of the same group stand below each other."""

    def __init__(self, rows: Sequence[Row], room: int) -> None:
        self._room = room
        self._widths: dict[int, list[int]] = {}
        for row in rows:
            if row.devices:
                self._measure(row.group, cells_of(row))

    def _measure(self, group: GroupPlan, cells: list[Cell]) -> None:
        known = self._widths.get(id(group), [0] * len(cells))
        self._widths[id(group)] = [
            max(width, len(cell.label) + 2, int(cell.share * _DEVICE)) for width, cell in zip(known, cells, strict=True)
        ]

    def lines(self, row: Row) -> list[Line]:
        """The bar of one row: one line, or where that has no room, one for each cell."""
        cells, widths = cells_of(row), self._widths[id(row.group)]
        drawn = [Piece(f" {cell.label}".ljust(width), cell.role) for cell, width in zip(cells, widths, strict=True)]
        if sum(widths) + len(widths) + 1 <= self._room:
            return [[piece for cell in drawn for piece in (Piece("|"), cell)] + [Piece("|")]]
        widest = max(widths)
        return [[Piece("|"), cell._replace(text=cell.text.ljust(widest)), Piece("|")] for cell in drawn]
