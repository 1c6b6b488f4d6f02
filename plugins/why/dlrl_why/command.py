"""The commands `dlrl status` and `dlrl why`."""

from __future__ import annotations

from typing import Annotated

import typer

from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import errors_shown


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One job, in detail.", show_default=False)
    ] = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Show all jobs, or one with its workloads and its last events.

    If a cluster is named, its masters are asked; else the records in the store count.

    \b
    Examples:
      dlrl status
      dlrl status quickstart --address 10.0.0.7:6379
    """
    with errors_shown(as_json):
        from dlrl_why.status import show_job, show_jobs

        if name is None:
            show_jobs(address, as_json=as_json)
        else:
            show_job(name, address, as_json=as_json)


def why(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job to explain.")],
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Say what happened to a job, why, and what to do next.

    One sentence with the first cause; then each thing that was found, what was
    decided and why, which processes were restarted, which steps were lost, and
    how many restarts are left. Works for a job that runs and for one that has ended.

    \b
    Examples:
      dlrl why quickstart
      dlrl why quickstart --address 10.0.0.7:6379 --json
    """
    with errors_shown(as_json):
        from dlrl_why.show import show_why

        show_why(name, address, as_json=as_json)
