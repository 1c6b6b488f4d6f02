"""ControlLoop: the life of one job, from reservation to release. The only place that acts.

What is seen becomes a finding, the finding a decision, the decision a recovery; all of it is written to the record as
one incident before anything is done, so that a restarted Master goes on from what it reads.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from ray.exceptions import RayError, RayTaskError

from dlrl_core.context import FindingKind, Incident, JobContext, JobEnding, JobState, WorkloadState
from dlrl_core.context.job_state import TrainerOutcome
from dlrl_core.errors import ContextError, DlrlError, JobError, ReservationError, StoreConflictError, WorkloadStartError
from dlrl_core.failover import (
    CallLost,
    FailoverDecision,
    MasterFailed,
    Observation,
    Recovery,
    Situation,
    TrainerGone,
    WorkloadGone,
    WorkloadHangs,
    decide,
    declared_scopes,
    finding_of,
    incident_of,
    plan_recovery,
)
from dlrl_core.failover.policy import completed
from dlrl_core.master.beginning_and_end import failed_by, tear_down, written_ending
from dlrl_core.master.detection import Detection
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.master.plan_and_reservation import NodeMoves, PlanAndReservation
from dlrl_core.master.trainer_process import TrainerProcess
from dlrl_core.master.workload_processes import NodeLostError, ProcessDiedError, WorkloadProcesses, answers, stacks_of
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.scheduler import workload_launcher
from dlrl_core.spec import JobSpec
from dlrl_core.spec.role_values import FailoverScope
from dlrl_core.trainer.workload_directory import DirectorySnapshot
from dlrl_core.workload.fault import ChaosNotes

_LOOK_S = 0.5
_LONGEST_STACKS = 20_000
_DIED_ALONE = "it died while its master was being restarted"


class ControlLoop:
    """Starts everything, watches everything, restarts what broke, ends everything."""

    def __init__(self, launch: MasterLaunch, context: JobContext) -> None:
        self.before_acting: Callable[[], Awaitable[None]] | None = None
        self._launch = launch
        self._context = context
        self._spec = JobSpec.from_json(launch.spec_json)
        self._reserved = PlanAndReservation(launch, self._spec, context)
        self._moves = NodeMoves(launch, self._spec, context, self._reserved)
        self._seen: asyncio.Queue[Observation] = asyncio.Queue()
        self._workloads = WorkloadProcesses(launch, self._spec, context, on_gone=self._seen.put_nowait)
        self.trainer = TrainerProcess(launch, self._spec, context, on_end=self._seen.put_nowait)
        self.detection = Detection(self._spec, context, self._host_of, self._seen)
        self.chaos = ChaosNotes(context, is_allowed=self._spec.allow_chaos)
        self._detecting: asyncio.Task[None] | None = None
        self._ready_at = context.now()
        self._moved: set[int] = set()
        """Nodes of the plan that were replaced since the last incident was completed, by index."""
        self._changed = asyncio.Event()

    # ---- the life of the job

    async def run(self) -> JobEnding:
        """From nothing, or from where an earlier Master left it, to the end of training.

        Raises what it does not know, for the next Master to adopt the job; else `tear_down` comes after.
        """
        try:
            self._detecting = asyncio.ensure_future(self.detection.run())
            await self._bring_up()
            self._become_stable()
            concurrencies = {role.concurrency for role in self._spec.roles}
            self._exporting = asyncio.ensure_future(asyncio.to_thread(workload_launcher.export_classes, concurrencies))
            return await self._handle_observations()
        except StoreConflictError:
            raise  # another Master owns the job now: this one must not end it
        except (DlrlError, RayTaskError) as error:
            return failed_by(error)
        except Exception as error:  # noqa: BLE001 - this process may be the cause: another one goes on from the record
            return await self._fail(error)

    async def _fail(self, error: Exception) -> JobEnding:
        """The ending, if restarts of the Master did not help; else raises the error, when it is in the record."""
        traceback.print_exception(error)
        ending = failed_by(error)
        try:
            incident, recovery, decision = self.decided(MasterFailed(name=MASTER, reason=ending.why or ""))
            ending = ending.model_copy(update={"why": incident.message})
            self._write(incident, recovery, ending)
        except StoreConflictError:
            raise
        except Exception:  # noqa: BLE001 - what can't be counted would come again and again
            traceback.print_exc()
            return ending
        if incident.scope is FailoverScope.STOP:
            return ending
        await asyncio.sleep(decision.wait_s)
        raise error

    async def _bring_up(self) -> None:
        """Start the job; or adopt what an earlier Master left, and complete what it had begun."""
        if self._context.record.state is JobState.RUNNING:
            await self._adopt()
            return
        if self._reserved.is_reserved():
            self._reserved.load()
        else:
            self._enter(JobState.RESERVING, "reserving a place for the workloads")
            await self._reserved.reserve()
            workloads, nodes = len(self._reserved.plan.workloads), len(self._reserved.plan.nodes)
            self._enter(JobState.STARTING, f"starting {workloads} workloads on {nodes} nodes, and the trainer")
        self._workloads.follow(self._reserved)
        is_first = all(one.incarnation == 0 for one in self._context.workloads.values())
        await self._attempt(frozenset(self._context.workloads), is_first=is_first)

    async def _adopt(self) -> None:
        """Take over what an earlier Master let run, and go on with the restarts that it had begun."""
        self._reserved.load()
        self._workloads.follow(self._reserved)
        found = workload_launcher.processes_of(self._launch.job)
        trainer = found.pop(TRAINER, None)
        for name in await self._workloads.adopt(found):
            self._observe_death(name, _DIED_ALONE)
        pending = self._pending()
        is_trainer_there = await self.trainer.is_adopted(trainer)
        with self._context.change() as change:
            adopted = len(self._workloads.roll().actors)
            change.event("adopted", f"{adopted} workloads go on as they are", subject="master")
        if is_trainer_there:
            self.trainer.watch()
        elif not self.trainer.is_due:
            self.trainer.report_gone(_DIED_ALONE)
        if pending or self.trainer.is_due:
            await self._attempt(pending)

    def _pending(self) -> frozenset[str]:
        return frozenset(name for name, one in self._context.workloads.items() if one.state is not WorkloadState.READY)

    # ---- observation -> finding -> decision -> recovery

    async def _handle_observations(self) -> JobEnding:
        while True:
            seen = await self._seen.get()
            self.detection.is_paused = True
            ending = await self._handle(seen)
            if ending is not None:
                return ending
            self._become_stable()

    async def _handle(self, seen: Observation) -> JobEnding | None:
        """The ending of the job, if the observation leads to it; else None, when what it broke runs again."""
        if not self._is_news(seen):
            return None
        if isinstance(seen, TrainerOutcome) and seen.is_success:
            self._complete_incidents()
            return JobEnding(state=JobState.FINISHED, result=seen.result)
        if isinstance(seen, WorkloadGone):
            seen = await self._with_call(seen)
        stacks = await self._stacks_of(seen)
        incident, recovery, decision = self.decided(seen, stacks=stacks)
        cause = seen.cause if isinstance(seen, TrainerOutcome | MasterFailed) else None
        ending = JobEnding(state=JobState.FAILED, why=incident.message, cause=cause)
        self._write(incident, recovery, ending)
        if incident.scope is FailoverScope.STOP:
            return ending
        await asyncio.sleep(decision.wait_s)
        if self.before_acting is not None:
            await self.before_acting()
        await self._attempt(recovery.names)
        return None

    def decided(self, seen: Observation, *, stacks: str | None = None) -> tuple[Incident, Recovery, FailoverDecision]:
        """The chain from an observation to its incident; nothing is written or done yet."""
        record = self._context.record
        finding = finding_of(seen, record.progress.step)
        decision = decide(finding, self._situation())
        recovery = plan_recovery(
            finding,
            decision.scope,
            self._context.workloads,
            self.trainer.edges,
            is_trainer_over=isinstance(seen, TrainerOutcome),
        )
        node_id, chaos = self._node_of_death(seen), self.chaos.take(finding.subject)
        incident = incident_of(
            finding, decision, recovery, record, now=self._context.now(), node_id=node_id, stacks=stacks, chaos=chaos
        )
        return incident, recovery, decision

    def _is_news(self, seen: Observation) -> bool:
        """Whether it is about a process that was not replaced since."""
        if isinstance(seen, WorkloadHangs):
            self.detection.hanging.discard(seen.actor_id)
        if isinstance(seen, WorkloadGone | WorkloadHangs):
            is_current = (self._context.process(seen.name).actor_id or "") == seen.actor_id
            return is_current and not (seen.name == TRAINER and self.trainer.is_due)
        if isinstance(seen, TrainerGone | TrainerOutcome):
            return self._context.record.trainer.incarnation == seen.incarnation
        return True

    async def _with_call(self, seen: WorkloadGone) -> WorkloadGone:
        is_up = self._context.workloads[seen.name].state is WorkloadState.READY
        call = await self.trainer.current_call(seen.name) if is_up else "construct"
        return WorkloadGone(name=seen.name, reason=seen.reason, call=call, actor_id=seen.actor_id)

    def _situation(self) -> Situation:
        record = self._context.record
        return Situation(
            declared={MASTER: FailoverScope.WORKLOAD, **{str(k): v for k, v in declared_scopes(self._spec).items()}},
            stateful=frozenset(str(one.role) for one in self._context.workloads.values() if one.is_stateful),
            budget=self._spec.restart_budget,
            incidents=record.incidents,
            now=self._context.now(),
            has_commit=record.progress.commit_json is not None,
        )

    def _node_of_death(self, seen: Observation) -> str | None:
        """The node on which a workload died: each death counts once, as its own watch sees it, and errors don't."""
        if not isinstance(seen, WorkloadGone | WorkloadHangs) or seen.name == TRAINER:
            return None
        return self._context.workloads[seen.name].node_id

    async def _stacks_of(self, seen: Observation) -> str | None:
        """Of a process that hangs, before it is ended; a silent one would not answer."""
        if not isinstance(seen, WorkloadHangs) or seen.is_silent or (host := self._host_of(seen.name)) is None:
            return None
        return (await stacks_of(host))[-_LONGEST_STACKS:]

    def _host_of(self, name: str) -> Any | None:
        """The process behind the name of a workload or the trainer; None if there is none."""
        return self.trainer.host if name == TRAINER else self._workloads.host_of(name)

    def _write(self, incident: Incident, recovery: Recovery, ending: JobEnding) -> None:
        """The incident and the state of all that it restarts, or the ending, in one commit, before anything is done."""
        record = self._context.record
        with self._context.change() as change:
            change.incident(incident)
            if incident.subject in self._context.workloads and incident.kind is FindingKind.PROCESS_DIED:
                change.workload(incident.subject, state=WorkloadState.DEAD, detail=incident.message)
            if incident.scope is FailoverScope.STOP:
                change.job(ending=ending.kept())
                return
            if incident.scope is FailoverScope.JOB and record.state is JobState.RUNNING:
                change.job(state=JobState.STARTING)
            for name in recovery.names:
                old = self._context.workloads[name]
                change.workload(
                    name,
                    state=WorkloadState.STARTING,
                    incarnation=old.incarnation + 1,
                    actor_id=None,
                    pid=None,
                    old_process=(old.pid, old.started) if old.pid else old.old_process,
                )
            if recovery.with_trainer:
                incarnation = record.trainer.incarnation + 1
                change.trainer(state="starting", incarnation=incarnation, pid=None)  # `until_alone` needs actor_id

    # ---- carrying out

    async def _attempt(self, names: frozenset[str], *, is_first: bool = False) -> None:
        """Start these workloads, and the trainer if it is due; a process that dies meanwhile is an observation."""
        try:
            await self._carry_out(names, is_first=is_first)
        except ProcessDiedError as error:
            self._observe_death(error.name, error.reason)
        except (ContextError, ReservationError):
            raise
        except (DlrlError, RayError, OSError) as error:  # of user code, of Ray or of the network
            name = min(names | self._pending(), default=TRAINER)
            if isinstance(error, WorkloadStartError):
                name = f"{error.role}-{error.rank}"
            if is_first or (name != TRAINER and not self._context.workloads[name].incarnation):
                raise  # user code or a cluster that never worked
            ending = failed_by(error)
            self._seen.put_nowait(MasterFailed(name=name, reason=ending.why or "", cause=ending.cause))

    def _observe_death(self, name: str, reason: str) -> None:
        if name not in self._context.workloads:
            self.trainer.report_gone(f"while it was starting: {reason}")
            return
        actor_id = self._context.workloads[name].actor_id or ""
        self._seen.put_nowait(WorkloadGone(name=name, reason=reason, actor_id=actor_id))

    async def _carry_out(self, names: frozenset[str], *, is_first: bool) -> None:
        if self.trainer.is_due:  # first: it has no place on a node, and imports its class meanwhile
            await self._start_trainer(is_first=is_first)
        while True:
            if not is_first:
                self._moved |= await self._moves.replace_lost_nodes()
            try:
                await self._start_workloads(names, is_first=is_first)
                break
            except NodeLostError:
                is_first = False  # once more, on another node; the trainer may have been on that one
                if self.trainer.is_due:
                    await self._start_trainer(is_first=False)
        if self.trainer.is_due and self._workloads.is_complete:  # else this is done again, for the missing ones
            self.trainer.run(self._workloads, await self.trainer.loaded(self._launch.limits.construct_s))

    async def _start_trainer(self, *, is_first: bool) -> None:
        if not is_first:
            await self.trainer.end()
        self.trainer.start(self._reserved.plan)

    async def _start_workloads(self, names: frozenset[str], *, is_first: bool) -> None:
        pending = self._pending()
        if is_first:  # existing actors were started ahead by the driver: they are used
            await self._workloads.start(names | pending)
        elif names | pending:
            await self._workloads.restart(names | pending)

    def _complete_incidents(self) -> None:
        """Write to all open incidents that every process is ready again."""
        records = self._context.workloads
        is_open = any(one.ready_at is None for one in self._context.record.incidents)
        if not is_open or not self._workloads.is_complete or self.trainer.is_due:
            return
        commits = self._context.record.progress.commits
        has_copies = commits is not None and commits.nodes > 1
        is_state_lost = bool(self._moved and not has_copies) and any(
            one.node in self._moved and records[one.name].is_stateful for one in self._reserved.plan.workloads
        )
        self._moved = set()
        with self._context.change(is_awaited=False) as change:
            for one in self._context.record.incidents:
                if one.ready_at is None and one.steady_at <= self._ready_at:
                    change.incident(completed(one, self._ready_at, is_state_lost=is_state_lost))

    # ---- asked by the trainer

    async def restored(self, name: str, actor_id: str) -> DirectorySnapshot:
        """Wait until this process of a workload was replaced, or is confirmed alive; the current processes."""
        while True:
            await self._until_stable()
            if self._context.workloads[name].actor_id != actor_id or await answers(self._workloads.host_of(name)):
                return self._workloads.roll()
            await asyncio.sleep(0.02)  # the watch on the process is about to notice

    async def stable(self) -> DirectorySnapshot:
        """Wait until nothing is being restarted; the current processes."""
        await self._until_stable()
        return self._workloads.roll()

    def escalate(self, name: str, method: str, term: int | None) -> None:
        """A call was interrupted that must not be repeated: the trainer has to go back to its last commit.

        Nothing, if it was a call of a trainer that was replaced since.
        """
        if term is not None and term >= self._context.record.trainer.incarnation:
            self.detection.is_paused = True
            self._seen.put_nowait(CallLost(name=name, method=method))

    async def _until_stable(self) -> None:
        while self.detection.is_paused or not self._seen.empty():
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)
            except TimeoutError:
                if written_ending(self._context.record) is not None:
                    raise JobError(self._launch.job, "the job is ending") from None

    def _become_stable(self) -> None:
        """Unless more was observed: answer the trainer, then write to open incidents that all is ready again."""
        if not self._seen.empty():
            return
        self.detection.is_paused, self._ready_at = False, self._context.now()
        self._changed.set()
        self._complete_incidents()

    # ---- the end

    async def tear_down(self, ending: JobEnding) -> None:
        """Write how the job ends, then kill and release everything, whatever state it is in."""
        self._workloads.stop_watching()
        self.trainer.stop_watching()
        if self._detecting is not None:
            self._detecting.cancel()
        await tear_down(self._launch, self._context, ending)

    def _enter(self, state: JobState, message: str) -> None:
        with self._context.change() as change:
            change.job(state=state)
            change.event("state", message, subject="job", state=str(state))
