"""The end of a job: a small table, or one JSON object."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from dlrl_core.cli import wording

if TYPE_CHECKING:
    from rich.table import Table

    from dlrl_core.api import JobStatus

_VALUE_ITEMS = 12
_LIST_ITEMS = 4
_VALUE_CHARACTERS = 120


def summary(status: JobStatus) -> dict[str, Any]:
    """What is shown of an ended job, as plain values."""
    return {
        "name": status.name,
        "state": status.state,
        "why": status.why,
        "steps": status.step,
        "total_steps": status.total_steps,
        "seconds": round(status.seconds, 3),
        "metrics": status.metrics,
        "phase_seconds": status.phase_seconds,
    }


def summary_table(status: JobStatus, value: Any = None) -> Table:
    """The same for people. `value` is what the trainer's `fit` returned."""
    from rich.text import Text

    from dlrl_core.cli.tables import fact_table, state_style

    table = fact_table()
    table.add_row("job", Text(status.name, style="bold"))
    table.add_row("state", Text(status.state, style=state_style(status.state)))
    table.add_row("steps", wording.steps(status.step, status.total_steps))
    table.add_row("time", wording.duration(status.seconds))
    if status.metrics:
        table.add_row("metrics", Text("\n".join(f"{key} {wording.number(one)}" for key, one in status.metrics.items())))
    if status.phase_seconds:
        table.add_row("last step", _phases(status.phase_seconds))
    if value is not None:
        table.add_row("result", Text(_short(value)))
    return table


def _phases(phase_seconds: dict[str, float]) -> Table:
    from rich.table import Table

    whole = sum(phase_seconds.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for name, seconds in wording.slowest(phase_seconds, len(phase_seconds)):
        table.add_row(name, wording.duration(seconds), f"{100 * seconds / whole:.0f}%" if whole else "")
    table.add_row("whole", wording.duration(whole), "", style="bold")
    return table


def _short(value: Any) -> str:
    """The result in a few lines, without secrets: one for each item of a mapping."""
    from dlrl_core.context import redact

    value = redact(value)
    if not isinstance(value, dict):
        return _one_line(value)
    lines = [f"{key} {_one_line(item)}" for key, item in value.items()]
    return "\n".join([*lines[:_VALUE_ITEMS], *(["..."] if len(lines) > _VALUE_ITEMS else [])])


def _one_line(value: Any) -> str:
    from rich.pretty import pretty_repr

    text = pretty_repr(value, max_length=_LIST_ITEMS, max_string=_VALUE_CHARACTERS, max_width=10_000)
    return textwrap.shorten(text, _VALUE_CHARACTERS, placeholder=" ...")
