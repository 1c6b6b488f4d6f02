"""`dlrl run`: submit a job, show how it goes, show how it ended."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import IO, TYPE_CHECKING

from dlrl_core.cli.error_report import fail
from dlrl_core.cli.job_input import JobInput
from dlrl_core.cli.output import console, print_json
from dlrl_core.cli.progress import progress_of
from dlrl_core.cli.result_summary import summary, summary_table
from dlrl_core.errors import DlrlError, JobError, JobExistsError, SpecError

if TYPE_CHECKING:
    from dlrl_core.api import JobStatus, RLJob


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


def submit_job(given: JobInput, *, name: str | None, address: str | None, wait_s: float, as_json: bool) -> None:
    """Submit the job to a cluster and leave it there."""
    if not (address or os.environ.get("RAY_ADDRESS")):
        raise SpecError(
            ["--detach needs a cluster that outlives this command; say --address or set RAY_ADDRESS, or leave it out"]
        )
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        job = given.build(import_classes=True)
        name = given.default_name() if name is None else name
        handle = job.submit(name, blocking=False, address=address, wait_for_resources_s=wait_s)
        status = handle.status()  # the Master is up, and no longer needs this process
        handle.detach()  # from here on, what the job prints is no longer ours to print
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
