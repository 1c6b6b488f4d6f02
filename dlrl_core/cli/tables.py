"""How tables look, and the colours of states."""

from __future__ import annotations

from rich import box
from rich.table import Table

_STATE_STYLES = {
    "running": "cyan",
    "finished": "green",
    "ready": "green",
    "loaded": "green",
    "ok": "green",
    "failed": "bold red",
    "dead": "bold red",
    "problem": "bold red",
    "broken": "bold red",
    "clash": "bold red",
    "api mismatch": "bold red",
    "warning": "yellow",
    "waiting": "yellow",
    "degraded": "yellow",
    "recovering": "yellow",
    "recovered": "cyan",
    "stopped": "yellow",
    "stopping": "yellow",
}


def state_style(state: str) -> str:
    """The colour of a state of a job, a workload, a plugin or a check."""
    return _STATE_STYLES.get(state, "default")


def list_table(*columns: str, title: str | None = None) -> Table:
    """A table with a row for each thing; long text in the last column is folded, elsewhere kept whole."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def fact_table(title: str | None = None) -> Table:
    """A table of one thing: names on the left, what they are on the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table
