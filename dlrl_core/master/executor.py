"""Executor: the Master's side of the trainer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, ProcessReport, TrainerState
from dlrl_core.errors import DlrlError, TrainerError
from dlrl_core.master.crew import Crew
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.liveness import answer
from dlrl_core.master.process_launches import start_trainer
from dlrl_core.master.waiting import answers_of
from dlrl_core.plan import ExecutionPlan
from dlrl_core.scheduler.names import TRAINER
from dlrl_core.scheduler.workload_launcher import find_actor, kill
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.trainer.trainer_host import TrainerOutcome
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.process import check_run

_ASK_S = 2.0
_ADOPT_S = 300.0
_NAME_FREE_S = 30.0


class TrainerDiedError(Exception):
    """The trainer's process died while it was starting."""


class Executor:
    """Starts the trainer's process or takes it over, lets it run, and knows what it last said."""

    def __init__(self, launch: MasterLaunch, spec: JobSpec, context: JobContext) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._trainer: Any = None
        self._loading: Any = None
        self._heard_at = 0.0
        self.edges: tuple[tuple[str, str], ...] = ()
        """Which role's calls were seen to follow, or to take results of, which other's."""

    def start(self, plan: ExecutionPlan) -> Any:
        """The trainer's process is on its way: let it import its class, beside the workloads."""
        incarnation = self._context.record.trainer.incarnation
        self._heard_at = 0.0  # another process, maybe with another clock
        self._trainer = start_trainer(self._launch, self._spec, plan, incarnation)
        self._loading = self._trainer.load.remote()
        return self._trainer

    async def end(self) -> None:
        """End the trainer's process, if there is one, and wait until its name can be used again."""
        deadline = time.monotonic() + _NAME_FREE_S
        while (trainer := find_actor(self._launch.job, TRAINER)) is not None:
            kill(trainer)
            if time.monotonic() > deadline:
                raise TrainerError("the old process of the trainer does not go away")
            await asyncio.sleep(0.02)

    async def is_adopted(self, trainer: Any) -> bool:
        """Take a trainer that an earlier Master let run; False if there is none, or it was never let run."""
        if trainer is None or self._context.record.trainer.state is not TrainerState.RUNNING:
            return False
        self._trainer = trainer
        try:
            answers = await answers_of(
                {"trainer": trainer.facts.remote(), "trainer's state": trainer.is_running.remote()},
                doing="answer its new master",
                timeout_s=_ADOPT_S,
            )
        except GONE:
            return False
        check_run(answers["trainer"], self._launch.run_id)
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
            raise TrainerDiedError(death_reason(error)) from None
        fact: ProcessReport = facts["trainer"]
        check_run(fact, self._launch.run_id)
        with self._context.change() as change:
            change.trainer(state="ready", node_id=fact.node_id, pid=fact.pid, actor_id=fact.actor_id)

    def run(self, crew: Crew) -> None:
        """Let it train, from the last commit on."""
        with self._context.change() as change:
            change.trainer(state="running")
        record = self._context.record
        self._trainer.run.remote(crew.master, crew.handles(), crew.tables, record.epoch, record.progress.commit_json)

    async def outcome(self) -> TrainerOutcome:
        """How the trainer ended; raises Ray's actor error if its process is gone."""
        outcome: TrainerOutcome = await self._trainer.outcome.remote()
        if outcome.progress is not None:
            self.heard(outcome.progress)
        return outcome

    def heard(self, report: ProgressReport) -> None:
        """Keep what the trainer says of its progress. What was said before the last word may come after it."""
        if report.sent_at < self._heard_at:
            return
        self._heard_at = report.sent_at
        self.edges = tuple((source, target) for source, target, _ in report.edges)
        with self._context.change() as change:
            change.progress(
                step=report.step,
                total_steps=report.total_steps,
                metrics=report.metrics,
                phase_seconds=report.phase_seconds,
                commit_json=report.commit or self._context.record.progress.commit_json,
                updated_at=report.sent_at,
            )
            change.trainer(phase=report.phase)

    async def current_call(self, name: str) -> str | None:
        """The method that the trainer waits for on this workload's role; None if it waits for none, or is gone."""
        if self._trainer is None:
            return None
        try:
            call, report = await asyncio.wait_for(answer(self._trainer.look.remote()), _ASK_S)
        except (TimeoutError, RayTaskError, *GONE):
            return None
        self.heard(report)
        role, _, method = (call or "").partition(".")
        return method if method and name.rpartition("-")[0] == role else None
