"""`dlrl doctor`: the verdicts as lines, and an exit code. `dlrl frameworks`: the plugins that are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import ExitCode, errors_shown

if TYPE_CHECKING:
    from dlrl_core.plugin.verdict import DoctorRequest, Verdict


def doctor(
    address: Address = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed runs left: local Rays, state, files of engines.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, and the cluster if one is named, and say what to do.

    \b
    Examples:
      dlrl doctor
      dlrl doctor --clean
    """
    with errors_shown(as_json):
        from dlrl_core.plugin.verdict import DoctorRequest

        raise typer.Exit(show_doctor(DoctorRequest(address=address, clean=clean), as_json=as_json))


def show_doctor(request: DoctorRequest, *, as_json: bool) -> ExitCode:
    """Make all checks and show what they found. Returns FAILED if there was a problem."""
    from dlrl_core.cli.output import console, print_json
    from dlrl_core.plugin.verdict import Level
    from dlrl_doctor.examination import examine

    verdicts = []
    for verdict in examine(request):
        verdicts.append(verdict)
        if not as_json:
            _print(verdict)
    counts = {level: sum(verdict.level is level for verdict in verdicts) for level in Level}
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    if as_json:
        checks = [{**vars(verdict), "level": verdict.level.value} for verdict in verdicts]
        print_json({"is_healthy": not problems, "problems": problems, "warnings": warnings, "checks": checks})
    else:
        console().print(f"\n{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}")
    return ExitCode.FAILED if problems else ExitCode.OK


def _print(verdict: Verdict) -> None:
    from rich.text import Text

    from dlrl_core.cli.output import console, state_style

    line = Text.assemble(
        (f"{verdict.level:<8} ", state_style(verdict.level)), (f"{verdict.subject}: ", "bold"), verdict.seen
    )
    if verdict.todo:
        line.append(f"\n         → {verdict.todo}", style="cyan")
    console().print(line, soft_wrap=True)


def frameworks(as_json: AsJson = False) -> None:
    """List the installed plugins and the frameworks they bring.

    \b
    Example:
      dlrl frameworks --json
    """
    with errors_shown(as_json):
        from dlrl_doctor.framework_list import show_frameworks

        show_frameworks(as_json=as_json)
