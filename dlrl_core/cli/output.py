"""What the command writes: results to stdout, everything else to stderr; how tables and states look."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dlrl_core.plugin import PluginHost

_PIPE_WIDTH = 160
_USUAL_WIDTH = 80
_NARROWEST = 40
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


def console(stream: IO[str] | None = None) -> Console:
    """A console on a stream, by default stdout. Into a pipe it writes wide lines, so that tables are not cut; no
    terminal is so narrow that nothing fits, whatever COLUMNS says."""
    from rich.console import Console

    stream = stream or sys.stdout
    is_pipe = not stream.isatty() and "COLUMNS" not in os.environ
    made = Console(file=stream, highlight=False, width=_PIPE_WIDTH if is_pipe else None)
    made.width = made.width if made.width >= _NARROWEST else _USUAL_WIDTH
    return made


def print_json(value: Any, stream: IO[str] | None = None) -> None:
    """One JSON value, without secrets, and always valid JSON."""
    from dlrl_core.context import redact

    print(json.dumps(redact(plain(value)), indent=2, allow_nan=False), file=stream or sys.stdout, flush=True)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: arrays become lists, NaN becomes 'NaN', anything else its text."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if callable(to_list := getattr(value, "tolist", None)):  # numpy and torch, which we never import
        return plain(to_list())
    return str(value)


def state_style(state: str) -> str:
    """The colour of a state of a job, a workload, a plugin or a check."""
    return _STATE_STYLES.get(state, "default")


def list_table(*columns: str, title: str | None = None) -> Table:
    """A table with a row for each thing; long text in the last column is folded, elsewhere kept whole."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def fact_table(title: str | None = None) -> Table:
    """A table of one thing: names on the left, what they are on the right."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


@contextmanager
def quiet_plugins() -> Iterator[PluginHost]:
    """The plugins of this process. In the block, their problems are not logged: the caller shows them."""
    from dlrl_core.plugin import plugin_host

    log = logging.getLogger("dlrl.plugin")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield plugin_host()
    finally:
        log.disabled = was_disabled


def print_problems(problems: list[str]) -> None:
    """One line for each on stderr."""
    from rich.text import Text

    stderr = console(sys.stderr)
    for problem in problems:
        stderr.print(Text.assemble(("problem: ", "bold red"), problem), soft_wrap=True)
