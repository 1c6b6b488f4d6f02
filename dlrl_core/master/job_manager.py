"""JobManager: the life of one job, from reservation to release. The only place that acts.

Every action is written to the JobContext before it is done, so that a restarted Master knows what may exist.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, JobState, TrainerState, WorkloadReport, WorkloadState
from dlrl_core.diagnosis import CallLost, Observation, TrainerGone, TrainerRaised, WorkloadGone, diagnose
from dlrl_core.errors import DlrlError, JobError, RemoteCause, StoreConflictError, WorkloadDiedError
from dlrl_core.failover import EscalatingPolicy, FailoverPolicy, FailoverScope
from dlrl_core.master.crew import Crew, NodeLostError, quiet
from dlrl_core.master.executor import Executor, TrainerDiedError
from dlrl_core.master.hangs import HangWatch
from dlrl_core.master.launch import JobEnding, MasterLaunch
from dlrl_core.master.placing import Placing
from dlrl_core.master.recovery import Recovery, plan_recovery, situation_of, write_recovery
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.names import TRAINER
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.trainer.roster import Roll
from dlrl_core.trainer.trainer_host import TrainerOutcome
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.fault import Fault, FaultKind, Suffering
from dlrl_core.workload.state_folder import forget_run

_LAST_WORD_S = 3.0
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class _TrainerEnded:
    """The trainer's `run` came to an end, in this process of it."""

    outcome: TrainerOutcome
    incarnation: int


class JobManager:
    """Starts everything, watches everything, restarts what broke, ends everything."""

    def __init__(self, launch: MasterLaunch, context: JobContext, policy: FailoverPolicy | None = None) -> None:
        self._launch = launch
        self._limits = launch.limits
        self._context = context
        self._policy = policy or EscalatingPolicy()
        self._spec = JobSpec.from_json(launch.spec_json)
        self._placing = Placing(launch, self._spec, context)
        self._seen: asyncio.Queue[Observation | _TrainerEnded] = asyncio.Queue()
        self._crew = Crew(launch, self._spec, context, on_gone=self._seen.put_nowait)
        self._executor = Executor(launch, self._spec, context)
        self._trainer_watch: asyncio.Task[None] | None = None
        self._hangs = HangWatch(self._spec, self._crew, context)
        self._hang_watch: asyncio.Task[None] | None = None
        self._is_recovering = True
        self._changed = asyncio.Event()
        self.reports: dict[str, WorkloadReport] = {}

    def heard(self, report: ProgressReport) -> None:
        """The trainer says where it is."""
        self._executor.heard(report)

    # ---- the life of the job

    async def run(self) -> JobEnding:
        """From nothing, or from where an earlier Master left it, to the end of training.

        Raises nothing but cancellation; `tear_down` comes after.
        """
        try:
            self._hang_watch = asyncio.ensure_future(self._hangs.watch(self.reports))
            await self._take_off()
            if self._seen.empty():
                self._settle_down()
            return await self._control_loop()
        except StoreConflictError:
            raise  # another Master has taken the job over: it is no longer ours to end
        except DlrlError as error:
            cause = getattr(error, "cause", None)
            why = getattr(error, "summary", None) or str(error)
            return JobEnding(state=JobState.FAILED, why=why, cause=cause)
        except (RayTaskError, *GONE) as error:
            return JobEnding(state=JobState.FAILED, why=death_reason(error), cause=RemoteCause.of(error))
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the job must still be torn down
            why = f"the master failed: {type(error).__name__}: {error}"
            return JobEnding(state=JobState.FAILED, why=why, cause=RemoteCause.of(error))

    async def _take_off(self) -> None:
        """Bring the job up; or adopt what an earlier Master left, and finish what it had begun."""
        if self._context.record.state is JobState.RUNNING:
            await self._adopt()
            return
        if self._placing.is_settled():
            self._placing.take_up()
        else:
            self._enter(JobState.RESERVING, "reserving a place for the workloads")
            await self._placing.settle()
            workloads, nodes = len(self._placing.plan.workloads), len(self._placing.plan.nodes)
            self._enter(JobState.STARTING, f"starting {workloads} workloads on {nodes} nodes, and the trainer")
        self._crew.follow(self._placing)
        is_first = all(one.incarnation == 0 for one in self._context.workloads.values())
        await self._attempt(Recovery.everything(self._context, is_first=is_first))

    async def _adopt(self) -> None:
        """Take over what an earlier Master let run, as it is; who is not ready was being restarted, and still is."""
        self._placing.take_up()
        self._crew.follow(self._placing)
        found = workload_launcher.processes_of(self._launch.job)
        trainer = found.pop(TRAINER, None)
        for name in await self._crew.adopt(found):
            record = self._context.workloads[name]
            self._seen.put_nowait(
                WorkloadGone(
                    name=name,
                    reason="it died while its master was being restarted",
                    call=None,
                    step=self._step(),
                    actor_id=record.actor_id or "",
                )
            )
        pending = {name for name, one in self._context.workloads.items() if one.state is not WorkloadState.READY}
        is_trainer_there = await self._executor.is_adopted(trainer)
        with self._context.change() as change:
            change.event("adopted", f"{self._crew.size} workloads go on as they are", subject="master")
        if is_trainer_there:
            self._watch_trainer()
        elif self._context.record.trainer.state is TrainerState.RUNNING:
            self._seen.put_nowait(self._trainer_gone("it died while its master was being restarted"))
        if pending or self._is_trainer_due():
            await self._attempt(Recovery(names=frozenset(pending)))

    def _is_trainer_due(self) -> bool:
        """Whether it was written down that the trainer is to be started, and it has not been let run since."""
        return self._context.record.trainer.state is not TrainerState.RUNNING

    # ---- the control loop

    async def _control_loop(self) -> JobEnding:
        """What is seen becomes a finding, the finding a decision, the decision is written down, then done."""
        while True:
            seen = await self._seen.get()
            self._is_recovering = True
            ending = await self._handle(seen)
            if ending is not None:
                return ending
            if self._seen.empty():
                self._settle_down()

    async def _handle(self, seen: Observation | _TrainerEnded) -> JobEnding | None:
        if not self._is_news(seen):
            return None
        if isinstance(seen, _TrainerEnded):
            outcome = seen.outcome
            if outcome.is_success:
                return JobEnding(state=JobState.FINISHED, why=None, result=outcome.result)
            seen = TrainerRaised(
                why=outcome.why or "the trainer failed",
                cause=outcome.cause,
                failed_workload=outcome.failed_workload,
                is_death=outcome.is_death,
                step=self._step(),
            )
        if isinstance(seen, WorkloadGone):
            is_up = self._context.workloads[seen.name].state is WorkloadState.READY
            call = await self._executor.current_call(seen.name) if is_up else "construct"
            reason = self._hangs.reason_of(seen.name) or seen.reason
            seen = WorkloadGone(name=seen.name, reason=reason, call=call, step=self._step(), actor_id=seen.actor_id)
        finding = diagnose(seen)
        decision = self._policy.decide(finding, situation_of(self._context, self._spec, finding))
        recovery = plan_recovery(
            decision, self._context, self._executor.edges, is_trainer_over=isinstance(seen, TrainerRaised)
        )
        write_recovery(decision, recovery, self._context)
        if decision.scope is FailoverScope.STOP:
            return JobEnding(state=JobState.FAILED, why=finding.message, cause=finding.cause)
        await asyncio.sleep(decision.wait_s)
        await self._attempt(recovery)
        return None

    def _is_news(self, seen: Observation | _TrainerEnded) -> bool:
        """Not of a process that was replaced already."""
        if isinstance(seen, WorkloadGone):
            return (self._context.workloads[seen.name].actor_id or "") == seen.actor_id
        if isinstance(seen, TrainerGone | _TrainerEnded):
            return self._context.record.trainer.incarnation == seen.incarnation
        return True

    async def _attempt(self, recovery: Recovery) -> None:
        """Carry out a recovery; should a process die on the way, that is one more thing seen."""
        try:
            while True:
                try:
                    return await self._carry_out(recovery)
                except NodeLostError:
                    recovery = Recovery(names=recovery.names)  # once more, on another node
        except WorkloadDiedError as error:
            name = f"{error.role}-{error.rank}"
            actor_id = self._context.workloads[name].actor_id or ""
            reason = str(error).partition(": ")[2]
            self._seen.put_nowait(
                WorkloadGone(name=name, reason=reason, call=None, step=self._step(), actor_id=actor_id)
            )
        except TrainerDiedError as error:
            self._seen.put_nowait(self._trainer_gone(f"while it was starting: {error}"))

    async def _carry_out(self, recovery: Recovery) -> None:
        if not recovery.is_first:
            await self._placing.replace_lost_nodes()
        is_trainer_due = self._is_trainer_due()
        if is_trainer_due and not recovery.is_first:
            await self._end_trainer()
        if is_trainer_due:
            self._executor.start(self._placing.plan)
        names = recovery.names | {
            name for name, one in self._context.workloads.items() if one.state is not WorkloadState.READY
        }
        if recovery.is_first:
            await self._crew.start(names)
        elif names:
            await self._crew.restart(names)
        if is_trainer_due and self._crew.is_complete:  # else we come here again, for who is missing
            await self._executor.loaded(self._limits.construct_s)
            if self._context.record.state is not JobState.RUNNING:
                self._enter(JobState.RUNNING, "the trainer runs")
            self._executor.run(self._crew)
            self._watch_trainer()

    async def _end_trainer(self) -> None:
        if self._trainer_watch is not None:
            self._trainer_watch.cancel()
        await self._executor.end()

    # ---- asked by the trainer

    async def restored(self, name: str, actor_id: str) -> Roll:
        """When this process of a workload has been replaced, or turns out to live: who is there now."""
        while True:
            await self._until_settled()
            if self._context.workloads[name].actor_id != actor_id or await self._crew.answers(name):
                return self._crew.roll()
            await asyncio.sleep(0.02)  # our own watch is about to notice

    async def settled(self) -> Roll:
        """When nothing is being restarted: who is there now."""
        await self._until_settled()
        return self._crew.roll()

    def escalate(self, name: str, method: str) -> None:
        """A call was interrupted that must not be made again: the trainer has to go back to its last commit."""
        self._is_recovering = True
        self._seen.put_nowait(CallLost(name=name, method=method, step=self._step()))

    async def _until_settled(self) -> None:
        while self._is_recovering or not self._seen.empty():
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)
            except TimeoutError:
                if self._context.record.state in (JobState.STOPPING, JobState.FAILED):
                    raise JobError(self._launch.job, "the job is ending") from None

    def _settle_down(self) -> None:
        self._is_recovering = False
        self._changed.set()

    # ---- chaos

    def suffer(self, fault: Fault) -> None:
        """Let it happen to the Master itself."""
        Suffering(is_allowed=self._spec.allows_chaos, owner="the master", has_calls=False).add(fault)

    def check_chaos(self) -> None:
        """Raises if the job does not allow it."""
        Suffering(is_allowed=self._spec.allows_chaos, owner="the master").add(Fault(kind=FaultKind.SLOW))

    # ---- watching the trainer

    def _watch_trainer(self) -> None:
        self._trainer_watch = asyncio.ensure_future(self._trainer_watched(self._context.record.trainer.incarnation))

    async def _trainer_watched(self, incarnation: int) -> None:
        try:
            self._seen.put_nowait(_TrainerEnded(outcome=await self._executor.outcome(), incarnation=incarnation))
            return
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - a watch that ends in silence would let the job hang for ever
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        self._seen.put_nowait(TrainerGone(reason=reason, step=self._step(), incarnation=incarnation))

    def _trainer_gone(self, reason: str) -> TrainerGone:
        return TrainerGone(reason=reason, step=self._step(), incarnation=self._context.record.trainer.incarnation)

    def _step(self) -> int | None:
        return self._context.record.progress.step

    # ---- the end

    async def tear_down(self, ending: JobEnding) -> None:
        """Kill and release everything, whatever state it is in, then write how the job ended."""
        self._crew.stop_watching()
        for watch in (self._trainer_watch, self._hang_watch):
            if watch is not None:
                watch.cancel()
        processes = workload_launcher.processes_of(self._launch.job)
        ends = [
            asyncio.ensure_future(quiet(actor.end.remote())) for name, actor in processes.items() if self._is_up(name)
        ]
        if ends:
            await asyncio.wait(ends, timeout=_LAST_WORD_S)
        self.end_processes()
        await asyncio.to_thread(self._forget_state, is_finished=ending.state == JobState.FINISHED)
        if self._context.record.state.is_final:
            return  # an earlier Master wrote it, and did not live to leave
        with self._context.change() as change:
            for name, workload in self._context.workloads.items():
                if workload.state is not WorkloadState.DEAD:
                    change.workload(name, state=WorkloadState.ENDED)
            change.job(state=JobState(ending.state), why=ending.why)
            change.event("ended", ending.why or "the trainer returned", subject="job", state=ending.state)

    def _forget_state(self, *, is_finished: bool) -> None:
        """What lies in memory is of no more use; what is durable, only to a job that has not come to its end."""
        forget_run(self._launch.run_id)  # on this node; on others, their workloads have done it
        if is_finished and self._launch.durable_folder is not None:
            shutil.rmtree(self._launch.durable_folder, ignore_errors=True)

    def end_processes(self) -> None:
        """Kill what is left of the job's processes and release its reservation; harmless where nothing is."""
        workload_launcher.kill_all(self._launch.job)
        self._placing.release()

    def _enter(self, state: JobState, message: str) -> None:
        with self._context.change() as change:
            change.job(state=state)
            change.event("state", message, subject="job", state=str(state))

    def _is_up(self, name: str) -> bool:
        """Whether that process has been heard of; one that still waits for its place has no last word to say."""
        record = self._context.workloads.get(name)
        return (record.pid if record else self._context.record.trainer.pid) is not None
