"""Registers the command `dlrl why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import Command, ImportPath


@hookimpl
def dlrl_commands() -> dict[str, Command | ImportPath]:
    return {"why": "dlrl_why.command:why"}
