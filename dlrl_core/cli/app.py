"""The `dlrl` command: one thin function for each subcommand.

Nothing heavy is imported at the top of this module or of those it imports: `dlrl --help` must come at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrl_core import __version__
from dlrl_core.cli.error_report import MEANINGS, errors_shown

if TYPE_CHECKING:
    from dlrl_core.cli.job_input import JobInput
    from dlrl_core.plugin import PluginHost

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

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB.yaml | -- WORDS...",
        help="A job file; or, with --framework, that framework's own words, unchanged.",
        show_default=False,
    ),
]
Framework = Annotated[str | None, typer.Option(help="Read the words as this framework does; see: dlrl frameworks.")]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the config, as in model.lr=0.1. Repeatable."),
]
NodeNum = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many nodes the job uses, whatever its file or config says.")
]
DevicePerNode = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many devices it uses on each of them.")
]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The Ray cluster to use; else RAY_ADDRESS counts.")
]
CommitWishes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="How often to commit and where to: every=5, budget=0.05, durable_every=20. Repeatable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object to stdout.")]


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


@app.command()
def run(
    words: Words = None,
    framework: Framework = None,
    name: Annotated[str | None, typer.Option(help="The job's name; by default that of its file.")] = None,
    address: Address = None,
    node_num: NodeNum = None,
    device_per_node: DevicePerNode = None,
    overrides: Override = None,
    commits: CommitWishes = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for resources that other jobs hold.")
    ] = 60.0,
    detach: Annotated[bool, typer.Option("--detach", help="Submit to a cluster and return at once.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job and wait for its end.

    Without a cluster address, a local Ray shaped like the job is started for
    it and stopped after it. Progress and what the job prints go to stderr, the
    result to stdout. Ctrl-C stops the job; a second one leaves it as it is.

    \b
    Examples:
      dlrl run examples/quickstart/quickstart.yaml --set steps=20
      dlrl run --framework verl -- python -m verl.trainer.main_ppo data.seed=1
    """
    with errors_shown(as_json):
        from dlrl_core.cli.run_job import run_job, submit_job

        given = job_input(words, framework, overrides, node_num, device_per_node, commits)
        if detach:
            submit_job(given, name=name, address=address, wait_s=wait, as_json=as_json)
        else:
            run_job(given, name=name, address=address, wait_s=wait, is_quiet=quiet, as_json=as_json)


@app.command()
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job to stop.")],
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Stop a job and wait until nothing of it is left.

    \b
    Example:
      dlrl stop quickstart --address 10.0.0.7:6379
    """
    with errors_shown(as_json):
        from dlrl_core.cli.stop_job import stop_job

        stop_job(name, address, as_json=as_json)


def main() -> None:
    """The entry point. Commands of plugins are added unless the first word is a command of dlrl's own."""
    if not {*sys.argv[1:2]} & own_commands():
        add_plugin_commands()
    app(prog_name="dlrl")


def own_commands() -> set[str]:
    """The names of the commands in this module, which no plugin can take: `KINDS` reserves them."""
    return {command.callback.__name__ for command in app.registered_commands if command.callback and not command.name}


def add_plugin_commands() -> None:
    """Add the plugin's command that is called; if it is none of theirs, all of them, and print which can't be used."""
    from dlrl_core.cli.output import print_problems, quiet_plugins

    with quiet_plugins() as host:
        called = usable_commands(host, sys.argv[1:2])
        commands = called or usable_commands(host)
    for name, function in commands.items():
        app.command(name)(_with_errors_shown(host, name, function))
    if not called:
        print_problems(host.problems("dlrl_commands"))


def _with_errors_shown(host: PluginHost, name: str, function: Callable[..., None]) -> Callable[..., None]:
    passing = (typer.Exit, typer.Abort, typer.BadParameter, SystemExit, BrokenPipeError)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        with errors_shown("--json" in sys.argv):
            host.blaming("dlrl_commands", name, function, but=passing)(*args, **kwargs)

    return call


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


def job_input(
    words: list[str] | None,
    framework: str | None,
    overrides: list[str] | None,
    node_num: int | None,
    device_per_node: int | None,
    commits: list[str] | None,
) -> JobInput:
    """What a command with these options was given."""
    from dlrl_core.cli.job_input import JobInput

    return JobInput(
        words=words or [],
        framework=framework,
        overrides=overrides or [],
        node_num=node_num,
        device_per_node=device_per_node,
        commits=commits or [],
    )
