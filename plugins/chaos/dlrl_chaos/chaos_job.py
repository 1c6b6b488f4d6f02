"""`dlrl chaos`: break a job on purpose."""

from __future__ import annotations

from dataclasses import dataclass

from dlrl_core.cli.output import print_json
from dlrl_core.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class ChaosOrder:
    """What is to happen, as told on the command line."""

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
        """Raises SpecError unless one victim is named, or chance chooses."""
        if (self.target is None) == (self.seed is None):
            raise SpecError(["name one process to hit, or say --seed to let chance choose"])
        if self.step is not None and self.call is not None:
            raise SpecError(["say either --step or --call, not both"])
        if self.seed is not None and (self.step is not None or self.call is not None):
            raise SpecError(["--seed chooses the moments; leave out --step and --call"])


def break_job(job: str, order: ChaosOrder, address: str | None, *, as_json: bool) -> None:
    """Give the job its faults, and say which."""
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
