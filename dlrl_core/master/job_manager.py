"""JobManager: the life of one job, from reservation to release. The only place that acts.

Every action is written to the JobContext before it is done, so that a restarted Master knows what may exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ray.exceptions import RayTaskError

from dlrl_core.context import JobContext, JobState, WorkloadReport, WorkloadState
from dlrl_core.diagnosis import Observation, TrainerGone, TrainerRaised, WorkloadGone, diagnose
from dlrl_core.errors import ClusterError, DlrlError, RemoteCause, TrainerError, WorkloadDiedError
from dlrl_core.failover import FailoverDecision, FailoverPolicy, FailoverScope, StopPolicy
from dlrl_core.master.executor import Executor
from dlrl_core.master.launch import JobEnding, MasterLaunch
from dlrl_core.master.placing import Placing
from dlrl_core.master.process_launches import start_processes
from dlrl_core.master.waiting import answers_of
from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import RoleType
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.names import MASTER, TRAINER, namespace_of
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.progress import ProgressReport
from dlrl_core.trainer.trainer_host import TrainerOutcome
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import GONE, death_reason
from dlrl_core.workload.master_handle import MasterHandle
from dlrl_core.workload.process import HostFacts, check_run

_LAST_WORD_S = 3.0


class JobManager:
    """Starts everything, watches everything, ends everything."""

    def __init__(self, launch: MasterLaunch, context: JobContext, policy: FailoverPolicy | None = None) -> None:
        self._launch = launch
        self._limits = launch.limits
        self._context = context
        self._master = MasterHandle(namespace=namespace_of(launch.job), name=MASTER)
        self._policy = policy or StopPolicy()
        self._spec = JobSpec.from_json(launch.spec_json)
        self._placing = Placing(launch, self._spec, context)
        self._hosts: dict[str, Any] = {}
        self._executor = Executor(launch.run_id, context)
        self._seen: asyncio.Queue[Observation | TrainerOutcome] = asyncio.Queue()
        self._watches: set[asyncio.Task[None]] = set()
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
            if self._context.record.state is JobState.RUNNING and await self._is_adopted():
                return await self._control_loop()
            tables = await self._bring_up()
            return await self._train(tables)
        except DlrlError as error:
            cause = getattr(error, "cause", None)
            why = getattr(error, "summary", None) or str(error)
            return JobEnding(state=JobState.FAILED, why=why, cause=cause)
        except (RayTaskError, *GONE) as error:
            return JobEnding(state=JobState.FAILED, why=death_reason(error), cause=RemoteCause.of(error))
        except Exception as error:  # noqa: BLE001 - whatever we got wrong, the job must still be torn down
            why = f"the master failed: {type(error).__name__}: {error}"
            return JobEnding(state=JobState.FAILED, why=why, cause=RemoteCause.of(error))

    async def _bring_up(self) -> Mapping[RoleType, bytes]:
        if self._placing.is_settled():
            self._placing.take_up()
        else:
            self._enter(JobState.RESERVING, "reserving a place for the workloads")
            await self._placing.settle()
            workloads, nodes = len(self._plan.workloads), len(self._plan.nodes)
            self._enter(JobState.STARTING, f"starting {workloads} workloads on {nodes} nodes, and the trainer")
        self._hosts = start_processes(self._launch, self._spec, self._plan, self._placing.group)
        self._executor.take(self._hosts.pop(TRAINER))
        facts = await self._host_facts()
        with self._context.change() as change:
            for name, fact in facts.items():
                change.workload(
                    name,
                    state=WorkloadState.STARTING,
                    actor_id=fact.actor_id,
                    node_id=fact.node_id,
                    pid=fact.pid,
                    device_ids=fact.device_ids,
                )
        tables, _ = await asyncio.gather(self._construct(facts), self._executor.loaded(self._limits.construct_s))
        return tables

    @property
    def _plan(self) -> ExecutionPlan:
        return self._placing.plan

    async def _is_adopted(self) -> bool:
        """Take over the processes that an earlier Master let run, as they are; False if the trainer never began."""
        self._placing.take_up()
        found = workload_launcher.processes_of(self._launch.job)
        trainer = found.pop(TRAINER, None)
        if trainer is None:
            raise TrainerError("the trainer's process died while its master was being restarted")
        for workload in self._plan.workloads:
            if workload.name not in found:
                raise self._died_unseen(workload.name)
        if not await self._executor.is_adopted(trainer):
            return False
        self._hosts = {workload.name: found[workload.name] for workload in self._plan.workloads}
        await self._host_facts()
        with self._context.change() as change:
            change.event("adopted", f"{len(self._hosts)} workloads and the trainer go on as they are", subject="master")
        self._watch(self._watch_trainer())
        return True

    async def _host_facts(self) -> dict[str, HostFacts]:
        """Where each workload's process is. Raises if one is not the process that an earlier Master wrote down."""
        refs = {name: host.facts.remote() for name, host in self._hosts.items()}
        facts: dict[str, HostFacts] = await self._answers(refs, doing="start", timeout_s=self._limits.process_s)
        for name, fact in facts.items():
            check_run(fact, self._launch.run_id)
            if self._context.workloads[name].actor_id not in (None, fact.actor_id):
                raise self._died_unseen(name)
        for name, host in self._hosts.items():
            self._watch(self._watch_workload(name, host))
        return facts

    def _died_unseen(self, name: str) -> WorkloadDiedError:
        role, _, rank = name.rpartition("-")
        return WorkloadDiedError(
            f"workload '{name}' died while its master was being restarted", role=role, rank=int(rank), method=None
        )

    async def _construct(self, facts: Mapping[str, HostFacts]) -> Mapping[RoleType, bytes]:
        """Construct all classes at once; the ranks of a role meet at a port of rank 0's node."""
        refs = {}
        devices: dict[tuple[RoleType, int], tuple[str, ...]] = {}
        for workload in self._plan.workloads:  # in rank order, so each node's devices are in the order of local_rank
            place = (workload.role, workload.node)
            devices[place] = (*devices.get(place, ()), *facts[workload.name].device_ids)
        for workload in self._plan.workloads:
            first = facts[workload.role.workload_name(0)]
            refs[workload.name] = self._hosts[workload.name].construct.remote(
                self._master, first.address, first.offered_port, devices[workload.role, workload.node]
            )
        tables = await self._answers(refs, doing="construct", timeout_s=self._limits.construct_s)
        with self._context.change() as change:
            for name in refs:
                change.workload(name, state=WorkloadState.READY)
        return {role: tables[role.workload_name(0)] for role in self._plan.roles}

    async def _answers(self, refs: Mapping[str, Any], *, doing: str, timeout_s: float) -> dict[str, Any]:
        try:
            return await answers_of(refs, doing=doing, timeout_s=timeout_s)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except GONE as error:
            seen = await self._first_gone(refs)
            role, _, rank = seen.rpartition("-")
            raise WorkloadDiedError(
                f"workload '{seen}' died during '{doing}': {death_reason(error)}",
                role=role,
                rank=int(rank),
                method=doing,
            ) from None

    async def _first_gone(self, refs: Mapping[str, Any]) -> str:
        for name, ref in refs.items():
            try:
                await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(ref.future())), timeout=0.01)
            except TimeoutError:
                continue
            except GONE:
                return name
            except RayTaskError:
                continue
        return next(iter(refs))

    async def _train(self, tables: Mapping[RoleType, bytes]) -> JobEnding:
        self._enter(JobState.RUNNING, "the trainer runs")
        workloads = [
            WorkloadHandle(
                name=plan.name,
                role=str(plan.role),
                rank=plan.rank,
                ray_actor=self._hosts[plan.name],
                part=plan.part,
            )
            for plan in self._plan.workloads
        ]
        self._executor.run(self._master, workloads, tables)
        self._watch(self._watch_trainer())
        return await self._control_loop()

    # ---- the control loop

    async def _control_loop(self) -> JobEnding:
        """What is seen becomes a finding, the finding a decision, the decision is written down, then done."""
        while True:
            seen = await self._seen.get()
            if isinstance(seen, TrainerOutcome):
                if seen.is_success:
                    return JobEnding(state=JobState.FINISHED, why=None, result=seen.result)
                seen = TrainerRaised(
                    why=seen.why or "the trainer failed",
                    cause=seen.cause,
                    failed_workload=seen.failed_workload,
                    is_death=seen.is_death,
                    step=self._step(),
                )
            decision = self._policy.decide(diagnose(seen))
            self._write(decision)
            if decision.scope is FailoverScope.STOP:
                return JobEnding(state=JobState.FAILED, why=decision.finding.message, cause=decision.finding.cause)
            raise ClusterError(f"no way to carry out a restart of scope '{decision.scope}'")

    def _write(self, decision: FailoverDecision) -> None:
        finding = decision.finding
        with self._context.change() as change:
            change.event("finding", finding.message, subject=finding.subject, finding=str(finding.kind))
            change.event("decision", f"scope '{decision.scope}': {decision.reason}", subject=finding.subject)
            if finding.subject in self._hosts and finding.kind == "process_died":
                change.workload(finding.subject, state=WorkloadState.DEAD, detail=finding.message)

    # ---- watching

    def _watch(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _watch_workload(self, name: str, host: Any) -> None:
        try:
            await host.watch.remote()
            return  # it was asked to end
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - a watch that ends in silence would let the job hang for ever
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        call = await self._executor.current_call(name)
        self._seen.put_nowait(WorkloadGone(name=name, reason=reason, call=call, step=self._step()))

    async def _watch_trainer(self) -> None:
        try:
            self._seen.put_nowait(await self._executor.outcome())
            return
        except GONE as error:
            reason = death_reason(error)
        except Exception as error:  # noqa: BLE001 - as above
            reason = f"it can no longer be watched: {type(error).__name__}: {error}"
        self._seen.put_nowait(TrainerGone(reason=reason, step=self._step()))

    def _step(self) -> int | None:
        return self._context.record.progress.step

    # ---- the end

    async def tear_down(self, ending: JobEnding) -> None:
        """Kill and release everything, whatever state it is in, then write how the job ended."""
        for watch in list(self._watches):
            watch.cancel()
        living = [
            actor for name, actor in workload_launcher.processes_of(self._launch.job).items() if self._is_up(name)
        ]
        ends = [asyncio.ensure_future(_quiet(actor.end.remote())) for actor in living]
        if ends:
            await asyncio.wait(ends, timeout=_LAST_WORD_S)
        self.end_processes()
        if self._context.record.state.is_final:
            return  # an earlier Master wrote it, and did not live to leave
        with self._context.change() as change:
            for name, workload in self._context.workloads.items():
                if workload.state is not WorkloadState.DEAD:
                    change.workload(name, state=WorkloadState.ENDED)
            change.job(state=JobState(ending.state), why=ending.why)
            change.event("ended", ending.why or "the trainer returned", subject="job", state=ending.state)

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


async def _quiet(ref: Any) -> None:
    """Wait for a last word that may never come."""
    try:
        await ref
    except (RayTaskError, *GONE):
        return
