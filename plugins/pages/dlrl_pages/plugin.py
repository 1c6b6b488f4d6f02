"""Registers the formats of a plan, and the adviser for a job that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import ImportPath, PlanAdviser, PlanFormat


@hookimpl
def dlrl_plan_formats() -> dict[str, PlanFormat | ImportPath]:
    return {
        "text": "dlrl_pages.text_picture:picture_of",
        "terminal": "dlrl_pages.terminal:shown_plan",
        "svg": "dlrl_pages.svg_picture:svg_of",
        "html": "dlrl_pages.html_page:html_of",
        "json": "dlrl_pages.json_document:json_of",
    }


@hookimpl
def dlrl_plan_advisers() -> dict[str, PlanAdviser | ImportPath]:
    return {"nearest": "dlrl_pages.advice:changes_that_fit"}
