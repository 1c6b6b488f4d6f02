"""Lease: for how long the trainer may call workloads without another word from the Master.

The Master starts a successor when the old process is known to have ended, or the last lease that it granted has run
out. So a trainer whose node was given up, and which lives on, stops before another one trains in its place.
"""

from __future__ import annotations

import contextlib
import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from dlrl_core.errors import TrainerError
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.workload.actors import NoAnswerError, ask_restarting
from dlrl_core.workload.process import end_replaced

LEASE_S = 20.0
"""Longer than a Master takes to be restarted, and the time between two reports."""
_LAST_WORD_S = 1.0
_ASK_AGAIN_S = 0.1
_MASTER_BACK_S = 300.0
_ANSWER_S = 15.0
"""Longer than the Master takes to answer that a restart is not finished yet."""


class Grant(enum.StrEnum):
    """The Master's answer to a report of the trainer."""

    GRANTED = "granted"
    """For LEASE_S from the moment when the report was sent."""
    LATER = "later"
    """It is not known yet: ask again."""
    REFUSED = "refused"
    """Another trainer replaces this one."""


@dataclass(kw_only=True)
class Lease:
    """What the Master has granted this process. The default is a lease without an end, of no term."""

    term: int | None = None
    until: float = math.inf
    """By this process's monotonic clock."""
    master: Any = None
    report: Callable[[], ProgressReport | None] = lambda: None
    """Makes the report that asks the Master for more."""

    @property
    def holds(self) -> bool:
        return time.monotonic() < self.until

    def signed(self, method: str) -> str:
        """The name by which a method is called: with the term."""
        return method if self.term is None else f"{self.term}:{method}"

    def check(self) -> None:
        """If it has run out, ask the Master and wait until it is granted again."""
        while not self.holds:
            sent_at = time.monotonic()
            self.heard(ask_master(self.master.trainer_progress, self.report()), sent_at)
            if not self.holds:
                time.sleep(_ASK_AGAIN_S)

    def give_up(self) -> None:
        """Call no workload any more, whatever is granted."""
        self.until = -math.inf

    def heard(self, grant: Grant, sent_at: float) -> None:
        """Take the answer to a report that was sent then. If it is a refusal, this process ends."""
        if grant is Grant.GRANTED and self.until >= 0:
            self.until = max(self.until, sent_at + LEASE_S)
        elif grant is Grant.REFUSED:
            self.give_up()
            with contextlib.suppress(Exception):  # the Master then need not wait for the end of the lease
                actor_id = ray.get_runtime_context().get_actor_id()
                ray.get(self.master.trainer_left.remote(actor_id), timeout=_LAST_WORD_S)
            end_replaced("the trainer")


def ask_master(method: Any, *args: Any) -> Any:
    """The Master's answer; a Master that is being restarted, or was on a lost node, is asked until it is back."""
    try:
        return ask_restarting(method, *args, answer_s=_ANSWER_S, back_s=_MASTER_BACK_S)
    except NoAnswerError as error:
        if error.is_alive:
            raise TrainerError(f"the job's master has not answered for {_MASTER_BACK_S:g} s") from None
        raise TrainerError("the job's master is gone, and with it the way to restart a workload") from error
