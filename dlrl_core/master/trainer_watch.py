"""Watching the trainer: its end, or its death, becomes one thing that the control loop sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dlrl_core.context import JobContext
from dlrl_core.diagnosis import TrainerGone
from dlrl_core.master.executor import Executor
from dlrl_core.trainer.trainer_host import TrainerOutcome
from dlrl_core.workload.death_reason import GONE, death_reason


@dataclass(frozen=True, kw_only=True)
class TrainerEnded:
    """The trainer's `run` came to an end, in this process of it."""

    outcome: TrainerOutcome
    incarnation: int


class TrainerWatch:
    """Keeps one call pending on the trainer's process."""

    def __init__(
        self, executor: Executor, context: JobContext, *, on_seen: Callable[[TrainerEnded | TrainerGone], None]
    ) -> None:
        self._executor = executor
        self._context = context
        self._on_seen = on_seen
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the process that is there now."""
        self._task = asyncio.ensure_future(self._watched(self._context.record.trainer.incarnation))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def say_gone(self, reason: str, incarnation: int | None = None) -> None:
        """The trainer's process is gone: the one of the record, unless another one is named."""
        record = self._context.record
        gone = record.trainer.incarnation if incarnation is None else incarnation
        self._on_seen(TrainerGone(reason=reason, step=record.progress.step, incarnation=gone))

    async def _watched(self, incarnation: int) -> None:
        try:
            self._on_seen(TrainerEnded(outcome=await self._executor.outcome(), incarnation=incarnation))
            return
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - a watch that ends in silence would let the job hang for ever
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        self.say_gone(reason, incarnation)
