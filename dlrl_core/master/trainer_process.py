"""TrainerProcess: the Master's side of the trainer. It starts or adopts its process and watches it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, JobState, TrainerState
from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.context.job_state import TrainerOutcome
from dlrl_core.context.process_report import ProcessReport
from dlrl_core.errors import ClusterError, DlrlError, StoreError, TrainerError
from dlrl_core.failover import TrainerGone
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.process_launches import start_trainer
from dlrl_core.master.workload_processes import ProcessDiedError, WorkloadProcesses, answer, replies_of
from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import TRAINER
from dlrl_core.scheduler.cluster_probe import is_known_to_have_ended
from dlrl_core.scheduler.workload_launcher import find_actor, kill, wait_until_gone
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.progress import LEASE_S, ProgressReport
from dlrl_core.workload.actors import GONE, death_reason
from dlrl_core.workload.process import check_run

_ASK_S = 2.0
_ADOPT_S = 300.0
_NAME_FREE_S = 30.0


class TrainerProcess:
    """Starts the trainer's process or adopts it, lets it run, records its progress, and reports its end."""

    def __init__(
        self,
        launch: MasterLaunch,
        spec: JobSpec,
        context: JobContext,
        *,
        on_end: Callable[[TrainerOutcome | TrainerGone], None],
    ) -> None:
        self._launch = launch
        self._spec = spec
        self._context = context
        self._on_end = on_end
        self.host: Any = None
        """The process; None before the first one."""
        self._loading: Any = None
        self._heard = 0
        """The sequence number of the last report of this process."""
        # What an earlier Master granted is not known; it may have been a moment ago.
        self._granted_until = time.monotonic() + LEASE_S if context.record.master_incarnation > 1 else 0.0
        self.left: set[str] = set()
        """Actor ids of processes that said that they call no workload any more."""
        self._watching: asyncio.Task[None] | None = None
        self.edges: tuple[tuple[str, str], ...] = ()
        """Pairs of roles: calls of the second were seen to follow the first, or to take its results."""

    @property
    def is_due(self) -> bool:
        """Whether the record says that a trainer is to be started, and none was let run since."""
        return self._context.record.trainer.state is not TrainerState.RUNNING

    def start(self, plan: ExecutionPlan) -> Any:
        """Start the process; it imports its class while the workloads start."""
        incarnation = self._context.record.trainer.incarnation
        self._heard = 0
        self.host = start_trainer(self._launch, self._spec, plan, incarnation)
        self._loading = self.host.load.remote()
        return self.host

    async def end(self) -> None:
        """Kill the process, if there is one, and wait until its name can be used again."""
        self.stop_watching()
        if (trainer := find_actor(self._launch.job, TRAINER)) is None:
            return
        if trainer._actor_id.hex() == self._context.record.trainer.actor_id:
            with contextlib.suppress(TimeoutError, RayTaskError, *GONE):
                await asyncio.wait_for(answer(trainer.end.remote(False)), _ASK_S)
                self.left.add(trainer._actor_id.hex())
        kill(trainer)
        if await asyncio.to_thread(wait_until_gone, self._launch.job, [TRAINER], _NAME_FREE_S):
            raise TrainerError("the old process of the trainer does not go away")

    async def until_alone(self) -> None:
        """Wait until the process that was let run last can act no more: it said so, has ended, or has no lease left."""
        old = self._context.record.trainer.actor_id
        while old is not None and old not in self.left and time.monotonic() < self._granted_until:
            if await asyncio.to_thread(is_known_to_have_ended, old):
                return
            await asyncio.sleep(0.2)

    async def is_adopted(self, trainer: Any) -> bool:
        """Take over a trainer that an earlier Master let run; False if there is none, or it was never let run.

        One that is newer than the record, which that Master could not write any more, is written now.
        """
        if trainer is None or self.is_due:
            return False
        self.host = trainer
        try:
            replies = await replies_of(
                {"trainer": trainer.facts.remote(), "trainer's state": trainer.is_running.remote()},
                doing="answer its new master",
                timeout_s=_ADOPT_S,
            )
        except (ClusterError, ProcessDiedError):
            return False
        fact: ProcessReport = replies["trainer"]
        check_run(fact, self._launch.run_id)
        if replies["trainer's state"] and fact.incarnation > self._context.record.trainer.incarnation:
            with self._context.change() as change:
                change.trainer(incarnation=fact.incarnation, node_id=fact.node_id, pid=fact.pid, actor_id=fact.actor_id)
        return bool(replies["trainer's state"])

    async def loaded(self, timeout_s: float) -> ProcessReport:
        """Wait until the trainer can run, and no other one can; raises TrainerError if its class can't be imported."""
        try:
            facts = await replies_of(
                {"trainer": self.host.facts.remote(), "trainer's import": self._loading},
                doing="start",
                timeout_s=timeout_s,
            )
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        fact: ProcessReport = facts["trainer"]
        check_run(fact, self._launch.run_id)
        await self.until_alone()
        return fact

    def run(self, workloads: WorkloadProcesses, facts: ProcessReport) -> None:
        """Let it train, from the last commit on; the job is running from then on."""
        with self._context.change() as change:
            if self._context.record.state is not JobState.RUNNING:
                change.job(state=JobState.RUNNING)
                change.event("state", "the trainer runs", subject="job", state=str(JobState.RUNNING))
            change.trainer(state=TrainerState.RUNNING, node_id=facts.node_id, pid=facts.pid, actor_id=facts.actor_id)
        record = self._context.record
        self.host.run.remote(
            workloads.master, workloads.handles(), workloads.tables, record.epoch, record.progress.commit_json
        )
        self.watch()

    # ---- watching

    def watch(self) -> None:
        """Keep one call pending on the process: its result, or its failure, is the trainer's end."""
        self._watching = asyncio.ensure_future(self._watched(self._context.record.trainer.incarnation))

    def stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def report_gone(self, reason: str, incarnation: int | None = None) -> None:
        """The process is gone: the one of the record, unless another one is named."""
        gone = self._context.record.trainer.incarnation if incarnation is None else incarnation
        self._on_end(TrainerGone(reason=reason, incarnation=gone))

    async def _watched(self, incarnation: int) -> None:
        try:
            outcome: TrainerOutcome = await self.host.outcome.remote()
            if outcome.progress is not None:
                self.record_progress(outcome.progress)
            self._on_end(outcome)
            return
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - a watch that ends without an observation would let the job hang
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        self.report_gone(reason, incarnation)

    # ---- progress

    def record_progress(self, report: ProgressReport) -> bool:
        """Write what the trainer reports; False if it was replaced. A report that is out of date is dropped."""
        known = self._context.record.trainer.incarnation
        if report.incarnation < known:
            return False
        self._granted_until = time.monotonic() + LEASE_S
        if report.incarnation > known or report.sequence < self._heard:  # a newer one is about to be adopted
            return True
        self._heard = report.sequence
        self.edges = tuple((source, target) for source, target, _ in report.edges)
        before = self._context.record.progress.commits
        is_news = report.commit is not None and report.commit != self._context.record.progress.commit_json
        # What can't be written comes again with the next report; a trainer is not refused for it.
        with contextlib.suppress(StoreError), self._context.change(is_awaited=is_news) as change:
            change.progress(
                step=report.step,
                total_steps=report.total_steps,
                metrics=report.metrics,
                phase_seconds=report.phase_seconds,
                commit_json=report.commit or self._context.record.progress.commit_json,
                commits=report.commits,
                updated_at=report.sent_at,
            )
            change.trainer(phase=report.phase)
            for kind, message in _commit_news(before, report.commits):
                change.event(kind, message, subject="job")
        return True

    async def current_call(self, name: str) -> str | None:
        """The method that the trainer waits for on this workload's role; None if it waits for none, or is gone."""
        if self.host is None:
            return None
        try:
            call, report = await asyncio.wait_for(answer(self.host.look.remote()), _ASK_S)
        except (TimeoutError, RayTaskError, *GONE):
            return None
        self.record_progress(report)
        role, _, method = (call or "").partition(".")
        return method if method and name.rpartition("-")[0] == role else None


def _commit_news(before: CommitsReport | None, after: CommitsReport | None) -> Iterator[tuple[str, str]]:
    """What became wrong or right with commits: the kinds of events for the journal, and their sentences.

    Trouble that goes on is not told again: `dlrl status` shows what is wrong now.
    """
    kinds = (
        ("trouble", "commits"),
        ("neighbour_trouble", "copies on other nodes"),
        ("durable_trouble", "durable copies"),
    )
    for name, what in kinds:
        old, new = getattr(before, name, None), getattr(after, name, None)
        is_lost = name == "trouble" and getattr(after, "lost_step", None) != getattr(before, "lost_step", None)
        if new is not None and (old is None or is_lost):
            yield "commit_lost" if is_lost else "commits", str(new)
        elif old is not None and new is None:
            yield "commits", f"{what} are made again"
