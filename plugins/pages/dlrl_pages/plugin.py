"""Registers the formats 'svg' and 'html' of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import ImportPath, PlanFormat


@hookimpl
def dlrl_plan_formats() -> dict[str, PlanFormat | ImportPath]:
    return {"svg": "dlrl_pages.svg_picture:svg_of", "html": "dlrl_pages.html_page:html_of"}
