"""A wall clock that somebody sets, as a fault of one process: a stand-in, as the clock of a machine is for all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrl_core.workload.fault import ChaosNotes

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class WallClockStandIn:
    """From now on `time.time` of the process is off by so much; its monotonic clock is the real one.

    What the process reads from its stepped clock goes to the file `told`.
    """

    step_s: float
    told: str

    @property
    def is_of_call(self) -> bool:
        return False

    def check(self, owner: str, *, has_calls: bool) -> None:
        """Every process can have it."""

    def is_due(self, method: str) -> bool:
        return True

    def carry_out(self) -> None:
        """Step the clock of this process."""
        before, step_s = time.time, self.step_s
        time.time = lambda: before() + step_s
        Path(self.told).write_text(repr(time.time()))

    def reach(self, master: ChaosNotes) -> None:
        """Step that of the Master."""
        master.injector.add(self)
