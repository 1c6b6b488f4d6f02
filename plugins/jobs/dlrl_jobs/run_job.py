"""`dlrl run`: submit a job, show how it goes, show how it ended."""

from __future__ import annotations

import sys
import textwrap
from contextlib import redirect_stdout
from typing import IO, TYPE_CHECKING, Any

import typer

from dlrl_core.cli import wording
from dlrl_core.cli.app import is_cluster_named
from dlrl_core.cli.error_report import ExitCode, fail
from dlrl_core.cli.output import console, fact_table, print_json, state_style
from dlrl_core.errors import DlrlError, JobError, JobExistsError, SpecError
from dlrl_jobs.job_input import JobInput
from dlrl_jobs.progress import progress_of

if TYPE_CHECKING:
    from rich.table import Table

    from dlrl_core.api import JobStatus, RLJob

_VALUE_ITEMS = 12
_LIST_ITEMS = 4
_VALUE_CHARACTERS = 120


def run_job(
    given: JobInput, *, name: str | None, address: str | None, wait_s: float, is_quiet: bool, as_json: bool
) -> None:
    """Run the job to its end. What its processes print goes to stderr, so that stdout holds the result alone."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        job = given.build(import_classes=True)
        name = given.default_name() if name is None else name
        try:
            with progress_of(name, is_quiet=is_quiet) as progress:
                result = job.submit(name, address=address, on_status=progress.saw, wait_for_resources_s=wait_s)
        except (JobError, KeyboardInterrupt) as error:
            _show_failure(error, job, as_json=as_json, stdout=stdout)
            return
    if as_json:
        print_json({**summary(result.status), "value": result.value}, stdout)
    else:
        console(stdout).print(summary_table(result.status, result.value))
    if result.status.degraded is not None:
        raise typer.Exit(ExitCode.CLUSTER)  # the handle has told that the store did not take the end


def submit_job(given: JobInput, *, name: str | None, address: str | None, wait_s: float, as_json: bool) -> None:
    """Submit the job to a cluster and leave it there."""
    if not is_cluster_named(address):
        raise SpecError(
            ["--detach needs a cluster that outlives this command; say --address or set RAY_ADDRESS, or leave it out"]
        )
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        job = given.build(import_classes=True)
        name = given.default_name() if name is None else name
        handle = job.submit(name, blocking=False, address=address, wait_for_resources_s=wait_s)
        status = handle.status()  # the Master is up, and no longer needs this process
        handle.detach()  # from here on, this process does not print what the job prints
    if as_json:
        print_json({"name": status.name, "state": status.state, "run_id": status.view["run_id"]}, stdout)
    else:
        print(f"job '{status.name}' is submitted; follow it with: dlrl status {status.name}", file=stdout)


def _show_failure(error: JobError | KeyboardInterrupt, job: RLJob, *, as_json: bool, stdout: IO[str]) -> None:
    status = None if isinstance(error, JobExistsError) else _last_status(job)
    if status is not None and not as_json:
        console(stdout).print(summary_table(status))
    fail(error, as_json=as_json, also=summary(status) if status else None, stdout=stdout)


def _last_status(job: RLJob) -> JobStatus | None:
    """None if the job was never submitted, or can no longer be asked."""
    try:
        return job.status()
    except DlrlError:
        return None


def summary(status: JobStatus) -> dict[str, Any]:
    """What is shown of an ended job, as plain values."""
    return {
        "name": status.name,
        "state": status.state,
        "why": status.why,
        "degraded": status.degraded,
        "steps": status.step,
        "total_steps": status.total_steps,
        "seconds": round(status.seconds, 3),
        "metrics": status.metrics,
        "phase_seconds": status.phase_seconds,
    }


def summary_table(status: JobStatus, value: Any = None) -> Table:
    """The same for people. `value` is what the trainer's `fit` returned."""
    from rich.text import Text

    table = fact_table()
    table.add_row("job", Text(status.name, style="bold"))
    table.add_row("state", Text(status.state, style=state_style(status.state)))
    table.add_row("steps", wording.steps(status.step, status.total_steps))
    table.add_row("time", wording.duration(status.seconds))
    if status.metrics:
        table.add_row("metrics", Text("\n".join(f"{key} {wording.number(one)}" for key, one in status.metrics.items())))
    if status.phase_seconds:
        table.add_row("last step", _phases(status.phase_seconds))
    if value is not None:
        table.add_row("result", Text(_short(value)))
    return table


def _phases(phase_seconds: dict[str, float]) -> Table:
    from rich.table import Table

    whole = sum(phase_seconds.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for name, seconds in wording.slowest(phase_seconds, len(phase_seconds)):
        table.add_row(name, wording.duration(seconds), f"{100 * seconds / whole:.0f}%" if whole else "")
    table.add_row("whole", wording.duration(whole), "", style="bold")
    return table


def _short(value: Any) -> str:
    """The result in a few lines, without secrets: one for each item of a mapping."""
    from dlrl_core.context import redact

    value = redact(value)
    if not isinstance(value, dict):
        return _one_line(value)
    lines = [f"{key} {_one_line(item)}" for key, item in value.items()]
    return "\n".join([*lines[:_VALUE_ITEMS], *(["..."] if len(lines) > _VALUE_ITEMS else [])])


def _one_line(value: Any) -> str:
    from rich.pretty import pretty_repr

    text = pretty_repr(value, max_length=_LIST_ITEMS, max_string=_VALUE_CHARACTERS, max_width=10_000)
    return textwrap.shorten(text, _VALUE_CHARACTERS, placeholder=" ...")
