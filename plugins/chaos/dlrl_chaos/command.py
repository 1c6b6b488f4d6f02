"""`dlrl chaos`: break a job on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from dlrl_chaos.fault import FaultKind
from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_core.cli.output import print_json
from dlrl_core.errors import SpecError
from dlrl_core.hints import did_you_mean


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


@dataclass(frozen=True, kw_only=True)
class ChaosOrder:
    """The faults that the command line asks for."""

    target: str | None
    kind: str
    step: int | None
    call: str | None
    nth: int
    seconds: float
    seed: int | None
    faults: int
    within_s: float

    def check(self) -> None:
        """Raises SpecError if its kind is unknown, or unless one process is named or a seed chooses."""
        kinds = [str(kind) for kind in FaultKind]
        if self.kind not in kinds:
            raise SpecError([f"unknown kind '{self.kind}'{did_you_mean(self.kind, kinds)} known: {', '.join(kinds)}"])
        if (self.target is None) == (self.seed is None):
            raise SpecError(["name one process to hit, or say --seed to let chance choose"])
        if self.step is not None and self.call is not None:
            raise SpecError(["say either --step or --call, not both"])
        if self.seed is not None and (self.step is not None or self.call is not None):
            raise SpecError(["--seed chooses the moments; leave out --step and --call"])


def break_job(job: str, order: ChaosOrder, address: str | None, *, as_json: bool) -> None:
    """Inject the faults and print each one."""
    order.check()
    from dlrl_chaos.chaos import Chaos
    from dlrl_core.api.connection import connect

    connection = connect(address)
    try:
        chaos = Chaos(job)
        if order.seed is not None:
            done = chaos.at_random(seed=order.seed, faults=order.faults, within_s=order.within_s, kinds=[order.kind])
        else:
            assert order.target is not None
            done = [
                chaos.inject(
                    order.target,
                    order.kind,
                    step=order.step,
                    method=order.call,
                    nth=order.nth,
                    seconds=order.seconds,
                )
            ]
    finally:
        connection.close()
    if as_json:
        faults = [{"target": one.target, "kind": str(one.kind), "when": one.when, "at": one.at} for one in done]
        print_json({"job": job, "faults": faults})
    else:
        for one in done:
            print(f"{one}")
