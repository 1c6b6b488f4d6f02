"""Executor: the Master's side of the trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext
from dlrl_core.errors import DlrlError, TrainerError
from dlrl_core.master.waiting import answers_of
from dlrl_core.roles import RoleType
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.trainer.trainer_host import TrainerOutcome
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.process import HostFacts, check_run

_ASK_S = 2.0
_ADOPT_S = 300.0


class Executor:
    """Takes the trainer's process, lets it run, and knows what it last said."""

    def __init__(self, run_id: str, context: JobContext) -> None:
        self._run_id = run_id
        self._context = context
        self._trainer: Any = None
        self._loading: Any = None
        self.progress: ProgressReport | None = None

    def take(self, trainer: Any) -> None:
        """The trainer's process is on its way: let it import its class, beside the workloads."""
        self._trainer = trainer
        self._loading = trainer.load.remote()

    async def is_adopted(self, trainer: Any) -> bool:
        """Take a trainer that an earlier Master let run; False if that Master died before it could."""
        self._trainer = trainer
        try:
            answers = await answers_of(
                {"trainer": trainer.facts.remote(), "trainer's state": trainer.is_running.remote()},
                doing="answer its new master",
                timeout_s=_ADOPT_S,
            )
        except GONE as error:
            raise TrainerError(f"the trainer's process died: {death_reason(error)}") from None
        check_run(answers["trainer"], self._run_id)
        return bool(answers["trainer's state"])

    async def loaded(self, timeout_s: float) -> None:
        """Wait until the trainer can run; raises TrainerError if its class can't be imported."""
        try:
            facts = await answers_of(
                {"trainer": self._trainer.facts.remote(), "trainer's import": self._loading},
                doing="start",
                timeout_s=timeout_s,
            )
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except GONE as error:
            raise TrainerError(f"the trainer's process died while it was starting: {death_reason(error)}") from None
        fact: HostFacts = facts["trainer"]
        check_run(fact, self._run_id)
        with self._context.change() as change:
            change.trainer(state="ready", node_id=fact.node_id, pid=fact.pid, actor_id=fact.actor_id)

    def run(self, master: Any, workloads: list[WorkloadHandle], tables: Mapping[RoleType, bytes]) -> None:
        with self._context.change() as change:
            change.trainer(state="running")
        self._trainer.run.remote(master, workloads, tables)

    async def outcome(self) -> TrainerOutcome:
        """How the trainer ended; raises Ray's actor error if its process is gone."""
        outcome: TrainerOutcome = await self._trainer.outcome.remote()
        if outcome.progress is not None:
            self.heard(outcome.progress)
        return outcome

    def heard(self, report: ProgressReport) -> None:
        """Keep what the trainer says of its progress."""
        self.progress = report
        with self._context.change() as change:
            change.progress(
                step=report.step,
                total_steps=report.total_steps,
                metrics=report.metrics,
                phase_seconds=report.phase_seconds,
                updated_at=report.sent_at,
            )
            change.trainer(phase=report.phase)

    async def current_call(self, name: str) -> str | None:
        """The method that the trainer waits for on this workload's role; None if it waits for none, or is gone."""
        if self._trainer is None:
            return None
        try:
            call: str | None = await asyncio.wait_for(_answer(self._trainer.current_call.remote()), _ASK_S)
        except (TimeoutError, RayTaskError, *GONE):
            return None
        role, _, method = (call or "").partition(".")
        return method if method and name.rpartition("-")[0] == role else None


async def _answer(ref: Any) -> Any:
    return await ref
