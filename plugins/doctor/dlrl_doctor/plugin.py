"""Registers the command `dlrl doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from dlrl_core import hookimpl
from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_core.plugin.hookspecs import Command


@hookimpl
def dlrl_commands() -> dict[str, Command]:
    return {"doctor": doctor}


def doctor(
    address: Address = None,
    clean: Annotated[bool, typer.Option("--clean", help="Remove the folders of local Rays that were killed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, and the cluster if one is named, and say what to do.

    \b
    Examples:
      dlrl doctor
      dlrl doctor --clean
    """
    with errors_shown(as_json):
        from dlrl_doctor.show_doctor import show_doctor

        raise typer.Exit(show_doctor(address, clean=clean, as_json=as_json))
