"""JobManager: the life of one job, from reservation to release. The only place that acts.

Every action is written to the JobContext before it is done, so that a restarted Master knows what may exist.
"""

from __future__ import annotations

import asyncio

from dlrl_core.context import JobContext, JobState, ProcessReport, TrainerState, WorkloadState
from dlrl_core.diagnosis import (
    CallLost,
    Finding,
    FindingKind,
    Observation,
    TrainerGone,
    TrainerRaised,
    WorkloadGone,
    diagnose,
)
from dlrl_core.errors import JobError, StoreConflictError, WorkloadDiedError
from dlrl_core.failover import EscalatingPolicy, FailoverPolicy, FailoverScope
from dlrl_core.master.crew import Crew, NodeLostError
from dlrl_core.master.ending import failed_by, tear_down, written_ending
from dlrl_core.master.executor import Executor, TrainerDiedError
from dlrl_core.master.hangs import HangWatch
from dlrl_core.master.launch import JobEnding, MasterLaunch
from dlrl_core.master.node_moves import NodeMoves
from dlrl_core.master.placing import Placing
from dlrl_core.master.process_launches import end_all
from dlrl_core.master.recovery import Recovery, plan_recovery, situation_of, write_recovery
from dlrl_core.master.trainer_watch import TrainerEnded, TrainerWatch
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.names import TRAINER
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.trainer.workload_directory import DirectorySnapshot
from dlrl_core.workload.fault import Fault, FaultInjector

_LOOK_S = 0.5
_DIED_ALONE = "it died while its master was being restarted"


class JobManager:
    """Starts everything, watches everything, restarts what broke, ends everything."""

    def __init__(self, launch: MasterLaunch, context: JobContext, policy: FailoverPolicy | None = None) -> None:
        self._launch = launch
        self._limits = launch.limits
        self._context = context
        self._policy = policy or EscalatingPolicy()
        self._spec = JobSpec.from_json(launch.spec_json)
        self._placing = Placing(launch, self._spec, context)
        self._moves = NodeMoves(launch, self._spec, context, self._placing)
        self._seen: asyncio.Queue[Observation | TrainerEnded] = asyncio.Queue()
        self._crew = Crew(launch, self._spec, context, on_gone=self._seen.put_nowait)
        self._executor = Executor(launch, self._spec, context)
        self._trainer_watch = TrainerWatch(self._executor, context, on_seen=self._seen.put_nowait)
        self._hangs = HangWatch(self._spec, self._crew, context)
        self._hang_watch: asyncio.Task[None] | None = None
        self._is_recovering = True
        self._changed = asyncio.Event()
        self.reports: dict[str, ProcessReport] = {}

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
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the job must still be torn down
            return failed_by(error)

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
            self._say_gone(name, _DIED_ALONE)
        pending = {name for name, one in self._context.workloads.items() if one.state is not WorkloadState.READY}
        is_trainer_there = await self._executor.is_adopted(trainer)
        with self._context.change() as change:
            change.event("adopted", f"{self._crew.size} workloads go on as they are", subject="master")
        if is_trainer_there:
            self._trainer_watch.start()
        elif self._context.record.trainer.state is TrainerState.RUNNING:
            self._trainer_watch.say_gone(_DIED_ALONE)
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

    async def _handle(self, seen: Observation | TrainerEnded) -> JobEnding | None:
        if not self._is_news(seen):
            return None
        if isinstance(seen, TrainerEnded):
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
            reason = self._hangs.reason_of(seen.actor_id) or seen.reason
            seen = WorkloadGone(name=seen.name, reason=reason, call=call, step=self._step(), actor_id=seen.actor_id)
        finding = diagnose(seen)
        decision = self._policy.decide(finding, situation_of(self._context, self._spec, finding))
        recovery = plan_recovery(
            decision, self._context, self._executor.edges, is_trainer_over=isinstance(seen, TrainerRaised)
        )
        write_recovery(decision, recovery, self._context, node_id=await self._node_of_death(seen, finding))
        if decision.scope is FailoverScope.STOP:
            return JobEnding(state=JobState.FAILED, why=finding.message, cause=finding.cause)
        await asyncio.sleep(decision.wait_s)
        await self._attempt(recovery)
        return None

    async def _node_of_death(self, seen: Observation, finding: Finding) -> str | None:
        """Where a process died, if one did. A death that the trainer met may have been seen and counted before."""
        record = self._context.workloads.get(finding.subject)
        if record is None or finding.kind is not FindingKind.PROCESS_DIED:
            return None
        is_new = isinstance(seen, WorkloadGone) or not await self._crew.answers(finding.subject)
        return record.node_id if is_new else None

    def _is_news(self, seen: Observation | TrainerEnded) -> bool:
        """Not of a process that was replaced already."""
        if isinstance(seen, WorkloadGone):
            return (self._context.workloads[seen.name].actor_id or "") == seen.actor_id
        if isinstance(seen, TrainerGone | TrainerEnded):
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
            self._say_gone(f"{error.role}-{error.rank}", str(error).partition(": ")[2])
        except TrainerDiedError as error:
            self._trainer_watch.say_gone(f"while it was starting: {error}")

    def _say_gone(self, name: str, reason: str) -> None:
        actor_id = self._context.workloads[name].actor_id or ""
        self._seen.put_nowait(WorkloadGone(name=name, reason=reason, call=None, step=self._step(), actor_id=actor_id))

    async def _carry_out(self, recovery: Recovery) -> None:
        if not recovery.is_first:
            await self._moves.replace_lost_nodes()
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
            self._trainer_watch.start()

    async def _end_trainer(self) -> None:
        self._trainer_watch.stop()
        await self._executor.end()

    # ---- asked by the trainer

    async def restored(self, name: str, actor_id: str) -> DirectorySnapshot:
        """When this process of a workload has been replaced, or turns out to live: who is there now."""
        while True:
            await self._until_settled()
            if self._context.workloads[name].actor_id != actor_id or await self._crew.answers(name):
                return self._crew.roll()
            await asyncio.sleep(0.02)  # our own watch is about to notice

    async def settled(self) -> DirectorySnapshot:
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
                if written_ending(self._context.record) is not None:
                    raise JobError(self._launch.job, "the job is ending") from None

    def _settle_down(self) -> None:
        self._is_recovering = False
        self._changed.set()

    # ---- chaos

    def inject(self, fault: Fault) -> None:
        """Schedule a fault for the Master's own process."""
        FaultInjector(is_allowed=self._spec.allows_chaos, owner="the master", has_calls=False).add(fault)

    def check_chaos(self) -> None:
        """Raise ChaosNotAllowedError if the job does not allow faults."""
        FaultInjector(is_allowed=self._spec.allows_chaos, owner="the master").check_allowed()

    def _step(self) -> int | None:
        return self._context.record.progress.step

    # ---- the end

    async def tear_down(self, ending: JobEnding) -> None:
        """Write how the job ends, then kill and release everything, whatever state it is in."""
        self._crew.stop_watching()
        self._trainer_watch.stop()
        if self._hang_watch is not None:
            self._hang_watch.cancel()
        await tear_down(self._launch, self._context, ending)

    def end_processes(self) -> None:
        """Kill what is left of the job's processes and release its reservation; harmless where nothing is."""
        end_all(self._launch)

    def _enter(self, state: JobState, message: str) -> None:
        with self._context.change() as change:
            change.job(state=state)
            change.event("state", message, subject="job", state=str(state))
