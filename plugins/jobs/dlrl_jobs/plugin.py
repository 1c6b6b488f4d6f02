"""Registers the commands `dlrl run`, `dlrl plan` and `dlrl stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import Command, ImportPath


@hookimpl
def dlrl_commands() -> dict[str, Command | ImportPath]:
    return {
        "run": "dlrl_jobs.command:run",
        "plan": "dlrl_jobs.command:plan",
        "stop": "dlrl_jobs.command:stop",
    }
