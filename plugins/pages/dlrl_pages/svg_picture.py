"""A plan as an SVG picture: a box for each node, in it the devices, cut by share and coloured by role.

Colour is never alone: every piece has its name and share as text. Equal nodes are drawn once where there are many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_pages.layout import DrawnNode, Row, counted, layout_of
from dlrl_pages.role_colours import ROLE_COLOURS
from dlrl_pages.svg_devices import GAP, Tiles, columns_of, flowed
from dlrl_pages.svg_elements import FAINT, INK, box, document, group, label, width_of
from dlrl_pages.text_picture import (
    headline,
    how_many,
    role_counts,
    shown_nodes,
    spare_lines,
    without_device,
    workloads_of,
)

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan
    from dlrl_core.roles import RoleType

_MOST_ROWS = 160
_MARGIN = 16
_PAD = 12
_LINE = 20
_LEAST_WIDTH = 640
_GROUND = "#f7f9fa"
_EDGE = "#9aa5b1"


def svg_of(plan: ExecutionPlan) -> str:
    """The whole picture; the same plan always gives the same text."""
    return _Picture(plan).drawn()


class _Picture:
    """Draws from top to bottom; `_y` is where the next thing goes, `_right` how far the widest one went."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan
        self._layout = layout_of(plan, _MOST_ROWS)
        self._tiles = Tiles.for_rows(plan, [row for node in self._layout.nodes for row in node.rows])
        self._y = _MARGIN
        self._right = _LEAST_WIDTH
        self._content: list[str] = []
        self._frames: list[tuple[int, int, int, bool]] = []
        """Where a box goes when the width of the picture is known: place in the content, top, height, is it dashed."""

    def drawn(self) -> str:
        self._legend()
        for node in self._layout.nodes:
            self._node(node)
        if self._layout.left_out_nodes:
            self._left_out()
        for line in spare_lines(self._plan):
            self._spare(line)
        for place, top, height, is_dashed in self._frames:
            width = self._right - _MARGIN
            self._content[place] = box(_MARGIN, top, width, height, fill=_GROUND, stroke=_EDGE, is_dashed=is_dashed)
        return document(self._right + _MARGIN, self._y, headline(self._plan), *self._content)

    def _text(self, x: int, text: str, *, is_bold: bool = False, fill: str = INK) -> str:
        """One line of text at the current height."""
        self._right = max(self._right, x + width_of(text) + _PAD)
        return label(x, self._y + 14, text, is_bold=is_bold, fill=fill)

    def _legend(self) -> None:
        self._content.append(self._text(_MARGIN, headline(self._plan), is_bold=True))
        self._y += _LINE + 4
        x, drawn = _MARGIN, []
        for role, count in role_counts(self._plan).items():
            drawn.append(group("role", self._swatch(x, role), self._text(x + 18, count), name=role))
            x += 18 + width_of(count) + 20
        self._content.append(group("legend", *drawn))
        self._y += _LINE
        note = "a device in several colours is shared; the height of a colour shows its share"
        self._content.append(self._text(_MARGIN, note, fill=FAINT))
        self._y += _LINE + GAP

    def _swatch(self, x: int, role: RoleType) -> str:
        return box(x, self._y + 4, 12, 12, fill=ROLE_COLOURS[role].fill, stroke=INK)

    def _open(self) -> tuple[int, int]:
        """A box starts here; everything until `_close` is drawn upon it."""
        self._content.append("")
        top = self._y
        self._y += 4
        return len(self._content) - 1, top

    def _close(self, opened: tuple[int, int], *, is_dashed: bool = False) -> None:
        place, top = opened
        self._y += 6
        self._frames.append((place, top, self._y - top, is_dashed))
        self._y += _PAD

    def _node(self, node: DrawnNode) -> None:
        opened = self._open()
        where = f"node {node.node} ({self._plan.nodes[node.node].shown})"
        self._content.append(self._text(_MARGIN + _PAD, where, is_bold=True))
        self._y += _LINE + 4
        self._devices([row for row in node.rows if row.devices], where, node.node)
        for row in node.rows:
            if not row.devices:
                self._without_device(row)
        self._close(opened)
        if node.others:
            self._others(node)

    def _devices(self, rows: list[Row], where: str, node: int) -> None:
        if not rows:
            return
        tiles, places = self._tiles, flowed([columns_of(row) for row in rows])
        for row, (column, line) in zip(rows, places, strict=True):
            x, y = _MARGIN + _PAD + tiles.left(column), self._y + line * (tiles.height + GAP)
            self._content.append(tiles.block(x, y, row, where, node))
            self._right = max(self._right, x + tiles.across(columns_of(row)) + _PAD)
        self._y += (places[-1][1] + 1) * (tiles.height + GAP)

    def _without_device(self, row: Row) -> None:
        x = _MARGIN + _PAD
        drawn = [self._text(x, "no device", fill=FAINT)]
        x += width_of("no device") + 12
        for member, text in zip(row.group.members, without_device(row), strict=True):
            drawn += [self._swatch(x, member.role), self._text(x + 18, text)]
            x += 18 + width_of(text) + 20
        self._content.append(group("no-device", *drawn, workloads=row.workloads))
        self._y += _LINE

    def _others(self, node: DrawnNode) -> None:
        """A flat box below the node that stands for the others."""
        self._y -= _PAD - 4
        opened = self._open()
        x = _MARGIN + _PAD
        drawn = [self._text(x, f"{shown_nodes(node.others)}: as node {node.node}", is_bold=True)]
        for seated, seats in node.others_seats:
            for member in seated.members:
                self._y += _LINE
                drawn += [self._swatch(x, member.role), self._text(x + 18, workloads_of(member, seats))]
        self._y += _LINE
        nodes, workloads, devices = counted(node.others), node.others_workloads, node.others_devices
        self._content.append(group("folded-nodes", *drawn, nodes=nodes, workloads=workloads, devices=devices))
        self._close(opened)

    def _left_out(self) -> None:
        nodes, workloads = self._layout.left_out_nodes, self._layout.left_out_workloads
        words = f"... and {how_many(nodes, 'more node')} with {how_many(workloads, 'workload')}"
        text = self._text(_MARGIN, f"{words}, each unlike those above")
        devices = self._layout.left_out_devices
        self._content.append(group("left-out", text, nodes=nodes, workloads=workloads, devices=devices))
        self._y += _LINE + GAP

    def _spare(self, line: str) -> None:
        opened = self._open()
        self._content.append(group("spare", self._text(_MARGIN + _PAD, line)))
        self._y += _LINE
        self._close(opened, is_dashed=True)
