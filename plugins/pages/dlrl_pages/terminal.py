"""A plan on the terminal: the picture in colours, what deaths restart, the size of commits, the table of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlrl_core.cli.output import console, list_table
from dlrl_core.roles import RoleType
from dlrl_pages.text_picture import Line, Piece, death_lines, picture_lines, state_lines, table_rows, workload_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dlrl_core.plan import ExecutionPlan

_ALL_ROWS = 64
_FIRST_ROWS = 16
_COLOURS = {
    RoleType.ACTOR: "white on blue",
    RoleType.ROLLOUT: "black on yellow",
    RoleType.REWARD: "black on green",
    RoleType.REFERENCE: "black on cyan",
    RoleType.CRITIC: "black on magenta",
}
"""Close to those of the SVG picture, out of the sixteen that every terminal has."""


def shown_plan(plan: ExecutionPlan) -> str:
    """The plan as stdout shows it, coloured on a terminal; of very many workloads, the table has the first ones."""
    stdout = console()
    with stdout.capture() as captured:
        _print(plan, stdout)
    return captured.get().rstrip("\n")


def _print(plan: ExecutionPlan, stdout: Console) -> None:
    for line in picture_lines(plan, stdout.width):
        stdout.print(_coloured(line), soft_wrap=True)
    for more in (death_lines(plan), state_lines(plan)):
        for line in [[], *more] if more else []:
            stdout.print(_coloured(line), soft_wrap=True)
    count = workload_count(plan)
    shown = count if count <= _ALL_ROWS else _FIRST_ROWS
    stdout.print(_table(plan, shown))
    if shown < count:
        stdout.print(f"... {count - shown} more; --json has all")


def _table(plan: ExecutionPlan, most: int) -> Table:
    from rich.text import Text

    table = list_table("workload", "node", "device", "share", "collocated with")
    for row in table_rows(plan, most):
        table.add_row(*map(Text, (row.workload, row.node, row.device, row.share, row.collocated_with)))
    return table


def _coloured(line: Line) -> Text:
    """Names and shares stay readable without colour: they are the same text as in `str(plan)`."""
    from rich.text import Text

    return Text.assemble(*((piece.text, _style(piece)) for piece in _trimmed(line)))


def _trimmed(line: Sequence[Piece]) -> list[Piece]:
    return [*line[:-1], *(piece._replace(text=piece.text.rstrip()) for piece in line[-1:])]


def _style(piece: Piece) -> str:
    if piece.role is not None:
        return _COLOURS[piece.role]
    return "bold" if piece.is_heading else ""
