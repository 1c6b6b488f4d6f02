"""The `dlrl` command: what plugins add to it, and the options that their commands share.

Nothing heavy is imported at the top of this module or of those it imports: `dlrl --help` must come at once.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrl_core import __version__
from dlrl_core.cli.error_report import MEANINGS, errors_shown

if TYPE_CHECKING:
    from dlrl_core.plugin import PluginHost

_OF_A_JOB = ("run", "stop")
"""Listed first. Most of what they call is the core: a bug there is a traceback, not an error of their plugin."""
EXIT_CODES = "\n".join(f"{code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    name="dlrl",
    help="Run reinforcement learning jobs on Ray, see how they go, and find out why they don't.",
    epilog=f"[bold]Exit codes[/bold]\n\n\b\n{EXIT_CODES}",
    no_args_is_help=True,
    rich_markup_mode="rich",
    # Errors of dlrl are sentences. A traceback is for bugs, and must not show local values, which may be secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The Ray cluster to use; else RAY_ADDRESS counts.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")]


def is_cluster_named(address: str | None) -> bool:
    """Whether a cluster was named, by --address or by RAY_ADDRESS."""
    return bool(address or os.environ.get("RAY_ADDRESS"))


def _version(is_asked: bool) -> None:
    if is_asked:
        print(f"dlrl {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the whole command; the help text is that of the app."""


def main() -> None:
    """The entry point: all commands come from plugins."""
    add_plugin_commands()
    app(prog_name="dlrl")


def add_plugin_commands() -> None:
    """Add the command that is called; if there is none of that name, all of them, and print which can't be used."""
    from dlrl_core.cli.output import print_problems, quiet_plugins

    with quiet_plugins() as host:
        called = usable_commands(host, sys.argv[1:2])
        commands = called or usable_commands(host)
    for name, function in sorted(commands.items(), key=lambda command: command[0] not in _OF_A_JOB):
        app.command(name)(_with_errors_shown(host, name, function))
    if not called:
        print_problems(host.problems("dlrl_commands"))


def _with_errors_shown(host: PluginHost, name: str, function: Callable[..., None]) -> Callable[..., None]:
    passing = (typer.Exit, typer.Abort, typer.BadParameter, SystemExit, BrokenPipeError)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        with errors_shown("--json" in sys.argv):
            host.blaming("dlrl_commands", name, function, but=passing)(*args, **kwargs)

    return function if name in _OF_A_JOB else call


def usable_commands(host: PluginHost, names: Sequence[str] | None = None) -> dict[str, Callable[..., None]]:
    """The plugins' commands, or those of these names; `host.problems` names each that can't be imported or used."""
    return {name: function for name, function in host.commands(names).items() if _is_command(host, name, function)}


def _is_command(host: PluginHost, name: str, function: Callable[..., None]) -> bool:
    """Whether typer can make a command of it; if an annotation, say, is unknown to it, the plugin is broken."""
    alone = typer.Typer(add_completion=False)
    alone.command()(function)
    try:
        typer.main.get_command(alone)
    except Exception as error:  # noqa: BLE001 - a plugin's code; the other commands must work
        host.refuse("dlrl_commands", name, f"is no command: {type(error).__name__}: {error}")
        return False
    return True
