"""Registers the formats 'svg' and 'html' of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plan import ExecutionPlan
    from dlrl_core.plugin.hookspecs import PlanFormat


@hookimpl
def dlrl_plan_formats() -> dict[str, PlanFormat]:
    return {"svg": _svg, "html": _html}


def _svg(plan: ExecutionPlan) -> str:
    from dlrl_pages.svg_picture import svg_of

    return svg_of(plan)


def _html(plan: ExecutionPlan) -> str:
    from dlrl_pages.html_page import html_of

    return html_of(plan)
