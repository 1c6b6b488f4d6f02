"""Registers the command `dlrl chaos`."""

from __future__ import annotations

from typing import Annotated

import typer

from dlrl_core import hookimpl
from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_core.plugin.hookspecs import Command


@hookimpl
def dlrl_commands() -> dict[str, Command]:
    return {"chaos": chaos}


def chaos(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job to break. It must allow it.")],
    target: Annotated[
        str | None, typer.Argument(metavar="[PROCESS]", help="master, trainer, or a workload such as rollout-1.")
    ] = None,
    kind: Annotated[str, typer.Option(help="kill, freeze, hang, slow, node (its node is lost) or store.")] = "kill",
    step: Annotated[int | None, typer.Option(min=1, help="When this step begins, counted from 1; else now.")] = None,
    call: Annotated[str | None, typer.Option(metavar="METHOD", help="At a call of this method.")] = None,
    nth: Annotated[int, typer.Option(min=1, help="At its n-th call from now on.")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long a slow call, or an outage of the store, lasts.")
    ] = 5.0,
    seed: Annotated[
        int | None, typer.Option(help="Let chance choose processes and moments; the same seed, the same.")
    ] = None,
    faults: Annotated[int, typer.Option(min=1, help="With --seed: how many.")] = 3,
    within: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="With --seed: in how long a time.")] = 10.0,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Break a job on purpose, to see that it survives.

    Only a job that was built with .allow_chaos(), or has allow_chaos in its
    job file, is touched.

    \b
    Examples:
      dlrl chaos my-ppo rollout-1 --step 3
      dlrl chaos my-ppo --seed 7 --faults 5 --within 30
    """
    with errors_shown(as_json):
        from dlrl_chaos.chaos_job import ChaosOrder, break_job

        order = ChaosOrder(
            target=target,
            kind=kind,
            step=step,
            call=call,
            nth=nth,
            seconds=seconds,
            seed=seed,
            faults=faults,
            within_s=within,
        )
        break_job(name, order, address, as_json=as_json)
