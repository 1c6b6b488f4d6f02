"""`dlrl doctor`: the verdicts as lines, and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.cli.exit_codes import ExitCode
from dlrl_core.cli.output import console, print_json

if TYPE_CHECKING:
    from dlrl_doctor import Verdict


def show_doctor(address: str | None, *, clean: bool, as_json: bool) -> ExitCode:
    """Examine, show, and say by the exit code if there was a problem."""
    from dlrl_doctor import Level, examine

    verdicts = []
    for verdict in examine(address, clean=clean):
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

    from dlrl_core.cli.tables import state_style

    line = Text.assemble(
        (f"{verdict.level:<8} ", state_style(verdict.level)), (f"{verdict.subject}: ", "bold"), verdict.seen
    )
    if verdict.todo:
        line.append(f"\n         → {verdict.todo}", style="cyan")
    console().print(line, soft_wrap=True)
