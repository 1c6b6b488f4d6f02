"""The devices of a node as SVG: a block for each seat, its body cut by share, in lines of up to eight devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrl_pages.layout import Row
from dlrl_pages.role_colours import NOBODY, ROLE_COLOURS
from dlrl_pages.svg_elements import FAINT, INK, box, group, label, width_of
from dlrl_pages.text_picture import Cell, cells_of, fitted, place_of, shown_share

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan

COLUMNS = 8
GAP = 8
_MOST_HEADS = 16
_HEAD = 18
_LINE = 18
_PART_LINE = 13
_LEAST_WIDTH = 96
_LEAST_BODY = 60


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The size of a device, the same in the whole picture, so that every name has room."""

    device_type: str
    width: int
    body: int
    """Height of what is cut by share."""

    @classmethod
    def for_rows(cls, plan: ExecutionPlan, rows: Iterable[Row]) -> Tiles:
        width, body = _LEAST_WIDTH, _LEAST_BODY
        for row in rows:
            if row.devices:
                cells = cells_of(row)
                texts = [place_of(row, plan.device_type), *(f"{cell.name} {shown_share(cell.share)}" for cell in cells)]
                widest = max(width_of(text) for text in [*texts, *(cell.part or "" for cell in cells)]) + 14
                width = max(width, -(-widest // columns_of(row)))
                body = max(body, sum(map(_least_height, cells)))
        return cls(device_type=plan.device_type, width=width, body=body)

    @property
    def height(self) -> int:
        return _HEAD + self.body

    def left(self, column: int) -> int:
        """Where a column starts."""
        return column * (self.width + GAP)

    def across(self, columns: int) -> int:
        """Width of so many devices side by side."""
        return columns * (self.width + GAP) - GAP

    def block(self, x: int, y: int, row: Row, where: str, node: int) -> str:
        """The devices of one row, and the workloads on them."""
        width, cells, place = self.across(columns_of(row)), cells_of(row), place_of(row, self.device_type)
        who = ", ".join(cell.label for cell in cells)
        body = self._body(x, y + _HEAD, width, cells, is_folded=row.seats > 1)
        frame = box(x, y, width, self.height, stroke=INK)
        if row.seats > 1 or len(row.devices) > _MOST_HEADS:
            head = _head(x, y, width, place)
            title, count = f"{place} of {where}: {who}", len(row.devices)
            return group("folded-devices", head, body, frame, title=title, node=node, devices=count, seats=row.seats)
        heads, count = [], len(row.devices)
        for index, device in enumerate(row.devices):
            left, right = x + width * index // count, x + width * (index + 1) // count
            name = f"{self.device_type} {device}"
            head = _head(left, y, right - left, name)
            heads.append(group("device", head, title=f"{name} of {where}: {who}", node=node, device=device))
        return group("seat", *heads, body, frame, title=f"{place} of {where}: {who}")

    def _body(self, x: int, y: int, width: int, cells: Sequence[Cell], *, is_folded: bool) -> str:
        heights = fitted([_least_height(cell) for cell in cells], [cell.share for cell in cells], self.body)
        drawn = []
        for cell, height in zip(cells, heights, strict=True):
            drawn.append(_cell(x, y, width, height, cell, is_folded=is_folded))
            y += height
        return "".join(drawn)


def columns_of(row: Row) -> int:
    """How many devices wide a row is drawn."""
    return min(COLUMNS, row.group.devices_per_seat if row.seats == 1 else max(2, row.group.devices_per_seat))


def flowed(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Column and line of each block: one after the other, a new line where the next one has no room."""
    places, column, line = [], 0, 0
    for width in widths:
        if column + width > COLUMNS:
            column, line = 0, line + 1
        places.append((column, line))
        column += width
    return places


def _head(x: int, y: int, width: int, name: str) -> str:
    return box(x, y, width, _HEAD, fill="#ffffff", stroke=INK) + label(x + 6, y + 13, name, fill=FAINT)


def _least_height(cell: Cell) -> int:
    return _LINE + (_PART_LINE if cell.part else 0)


def _cell(x: int, y: int, width: int, height: int, cell: Cell, *, is_folded: bool) -> str:
    colour = NOBODY if cell.role is None else ROLE_COLOURS[cell.role]
    base = y + (height - _least_height(cell)) // 2 + 13
    content = [
        box(x, y, width, height, fill=colour.fill, stroke="#ffffff"),
        label(x + 6, base, cell.name, fill=colour.text, is_bold=cell.role is not None),
        label(x + width - 6, base, shown_share(cell.share), fill=colour.text, is_at_end=True),
    ]
    if cell.part:
        content.append(label(x + 6, base + _PART_LINE, cell.part, fill=colour.text))
    if cell.role is None:
        return group("unused", *content)
    return group("folded-workloads" if is_folded else "workload", *content, name=cell.name)
