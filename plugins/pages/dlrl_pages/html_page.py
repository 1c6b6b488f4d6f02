"""A plan as one page: the picture, what deaths restart, the size of commits, the workloads. It loads nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlrl_pages.state_on_nodes import StateRow, state_rows, state_sentence
from dlrl_pages.svg_elements import clean
from dlrl_pages.svg_picture import svg_of
from dlrl_pages.text_picture import TableRow, headline, table_rows, workload_count

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan

_MOST_WORKLOADS = 2_000

_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2933; --edge: #cbd2d9; --head: #f0f3f5 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181c; --ink: #e4e7eb; --edge: #3e4c59; --head: #1f272e }
}
body { background: var(--ground); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; margin: 1.5rem }
.picture { overflow-x: auto; background: #ffffff; border: 1px solid var(--edge); width: fit-content; max-width: 100% }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem }
th, td { border: 1px solid var(--edge); padding: 0.2rem 0.6rem; text-align: left }
th { background: var(--head); position: sticky; top: 0 }
"""


def html_of(plan: ExecutionPlan) -> str:
    """The whole page: HTML that is well-formed XML too. Of very many workloads, the table has the first ones."""
    title = clean(f"plan: {headline(plan)}")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">',
            f'<head><meta charset="utf-8"/><title>{title}</title><style>{_STYLE}</style></head>',
            f"<body><h1>{title}</h1>",
            f'<div class="picture">{svg_of(plan)}</div>',
            *_deaths(plan),
            *_state(plan),
            *_workloads(plan),
            "</body></html>",
            "",
        ]
    )


def _deaths(plan: ExecutionPlan) -> list[str]:
    if not plan.deaths:
        return []
    rows = ((str(role), what) for role, what in plan.deaths.items())
    return ["<h2>when one dies</h2>", *_table("deaths", ("role", "what is restarted"), rows)]


def _state(plan: ExecutionPlan) -> list[str]:
    if not plan.state_sizes:
        return []
    columns = tuple(name.replace("_", " ") for name in StateRow._fields)
    note = f"<p>{clean(state_sentence(plan))}</p>"
    return ["<h2>state of a commit</h2>", *_table("state", columns, state_rows(plan)), note]


def _workloads(plan: ExecutionPlan) -> list[str]:
    rows = table_rows(plan, _MOST_WORKLOADS)
    columns = tuple(name.replace("_", " ") for name in TableRow._fields)
    more = workload_count(plan) - len(rows)
    note = [f'<p class="more">... and {more} more; the JSON of the plan has all</p>'] if more else []
    return ["<h2>workloads</h2>", *_table("workloads", columns, rows), *note]


def _table(name: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f'<table id="{name}"><thead>{_row("th", columns)}</thead><tbody>',
        *(_row("td", row) for row in rows),
        "</tbody></table>",
    ]


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return f"<tr>{''.join(f'<{tag}>{clean(cell)}</{tag}>' for cell in cells)}</tr>"
