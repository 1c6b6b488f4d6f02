"""JobStory: what happens to a job, told to its record by the code that a Master uses, without a Master."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlrl_chaos.fault import FaultKind, FaultNote
from dlrl_core.context import Incident, JobContext, JobEnding, JobRecord, WorkloadRecord, open_store
from dlrl_core.context.job_state import TrainerOutcome
from dlrl_core.context.store import sqlite_url
from dlrl_core.errors import ErrorIdentity
from dlrl_core.failover import MasterFailed, Observation, TrainerGone, WorkloadGone, WorkloadHangs
from dlrl_core.master.control_loop import ControlLoop
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec
from dlrl_core.spec.job_spec import RestartBudget
from dlrl_why.explain import Answer, Evidence, explain

SIGKILLED = "its process ended without a word (SIGKILL, out of memory, or a crash)"
NODE = "node-of-all"


class JobStory:
    """Two actors with state that restart as a role, two rollouts that restart alone, a critic that takes the job with
    it, and a reward without which there is no job.
    """

    def __init__(self, folder: Path, name: str = "my-ppo", **budget: Any) -> None:
        self.store = open_store(sqlite_url(folder / "context.db"))
        self.spec = _spec(RestartBudget(backoff_s=0, **budget))
        record = JobRecord(
            name=name,
            spec_json=self.spec.to_json(),
            plan_json=json.dumps({"nodes": [{"node_id": NODE, "address": "10.0.0.7"}]}),
            store_url="sqlite:///x.db",
            master_incarnation=1,
        )
        self.context = JobContext.create(self.store, record, _workloads())
        self.loop = ControlLoop(_launch(record), self.context)
        self.loop._workloads = _AllUp()  # type: ignore[assignment]

    def close(self) -> None:
        self.store.close()

    # ---- what happens

    def starts(self) -> None:
        with self.context.change() as change:
            change.job(state="reserving")
            change.event("state", "reserving a place for the workloads", subject="job", state="reserving")
        with self.context.change() as change:
            change.job(state="starting")
        self.comes_up()

    def comes_up(self) -> None:
        """All processes that were started are ready, and the trainer runs."""
        with self.context.change() as change:
            for number, name in enumerate(self.context.workloads):
                change.workload(name, state="ready", pid=100 + number, node_id=NODE, is_stateful="actor" in name)
            change.trainer(state="running", phase="fit")
            if self.context.record.state != "running":
                change.job(state="running")
                change.event("state", "the trainer runs", subject="job", state="running")
        self.loop._ready_at = self.context.now()
        self.loop._complete_incidents()

    def comes_to(self, step: int, *, committed: int | None = None) -> None:
        with self.context.change() as change:
            change.progress(step=step, total_steps=10)
            if committed is not None:
                commit = {"version": committed, "id": "x", "step": committed - 1, "progress": {}}
                change.progress(commit_json=json.dumps(commit))

    def loses(self, name: str, reason: str = SIGKILLED) -> None:
        """A workload dies, or the trainer."""
        if name == "trainer":
            self._sees(TrainerGone(reason=reason, incarnation=self.context.record.trainer.incarnation))
        else:
            self._sees(WorkloadGone(name=name, reason=reason, call="update"))

    def hangs(self, name: str, reason: str, stacks: str) -> None:
        self._sees(WorkloadHangs(name=name, reason=reason, actor_id=""), stacks=stacks)

    def fails_to_start(self, name: str, reason: str) -> None:
        """A workload can't be started again; with the name 'master', the Master meets an error that it does not know."""
        self._sees(MasterFailed(name=name, reason=reason))

    def raises(self, why: str, workload: str | None = None, kind: str = "ValueError") -> None:
        role = (workload or "trainer").partition("-")[0]
        error = ErrorIdentity(type_name=kind, role=role, method="update")
        self._sees(TrainerOutcome(is_success=False, why=why, failed_workload=workload, error_identity=error))

    def moves_off_a_lost_node(self) -> None:
        self.loop._moved, self.loop._reserved = {0}, _OnOneNode()  # type: ignore[assignment]

    def notes(self, message: str, subject: str, kind: FaultKind) -> None:
        """The Master hears of a fault, as from `dlrl chaos`."""
        FaultNote(message=message, subject=subject, kind=kind).reach(self.loop.chaos)

    def tells(self, kind: str, message: str, subject: str = "job", **data: Any) -> None:
        with self.context.change() as change:
            change.event(kind, message, subject=subject, **data)

    def waits_for(self, what: str) -> None:
        with self.context.change() as change:
            change.job(waiting_for=what)
            change.event("waiting", f"waiting for resources: {what}", subject="job")

    def gets_a_new_master(self) -> None:
        with self.context.change() as change:
            change.job(master_incarnation=self.context.record.master_incarnation + 1)
            change.event("adopted", f"{len(self.context.workloads)} workloads go on as they are", subject="master")

    def is_asked_to_stop(self, reason: str = "stopped by: dlrl stop") -> None:
        with self.context.change() as change:
            change.job(state="stopping", why=reason)
            change.event("stop", reason, subject="job")

    def ends(self, state: str, why: str | None = None) -> None:
        with self.context.change() as change:
            for name, workload in self.context.workloads.items():
                if workload.state != "dead":
                    change.workload(name, state="ended")
            change.job(state=state, why=why)
            change.event("ended", why or "the trainer returned", subject="job", state=state)

    def _sees(self, seen: Observation, stacks: str | None = None) -> None:
        """What the Master's control loop writes about an observation, without the processes that it would restart."""
        incident, recovery, _ = self.loop.decided(seen, stacks=stacks)
        self.loop._write(incident, recovery, JobEnding(state="failed", why=incident.message))
        if incident.scope == "stop":
            self.ends("failed", incident.message)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self.context.record.incidents

    # ---- what is said of it

    def evidence(self, **more: Any) -> Evidence:
        given = {"view": self.context.snapshot(), "now": time.time(), "events": self.context.journal()}
        return Evidence(**{**given, **more})

    def why(self, **more: Any) -> Answer:
        return explain(self.evidence(**more))


class _OnOneNode:
    """Stands for the plan: the actors are on node 0."""

    plan = SimpleNamespace(workloads=[SimpleNamespace(name=f"actor-{rank}", node=0) for rank in (0, 1)])


class _AllUp:
    """Stands for the processes: each workload has one."""

    is_complete = True


def _launch(record: JobRecord) -> MasterLaunch:
    return MasterLaunch(
        job=record.name,
        run_id=record.run_id,
        spec_json=record.spec_json,
        plan_json=None,
        store_url=record.store_url,
        python_path=(),
        state_keeper="dlrl_state.keeper:NodeMemoryKeeper",
        plugins=None,
        reservation=None,
    )


def _spec(budget: RestartBudget) -> JobSpec:
    cls = ClassRef(module="my.roles", class_name="Any")
    scopes = {RoleType.ACTOR: "role", RoleType.ROLLOUT: "workload", RoleType.REWARD: "stop", RoleType.CRITIC: None}
    roles = [RoleSpec(role=role, cls=cls, failover=scope) for role, scope in scopes.items()]
    return JobSpec(roles=tuple(roles), restart_budget=budget)


def _workloads() -> list[WorkloadRecord]:
    counts = {RoleType.ACTOR: 2, RoleType.ROLLOUT: 2, RoleType.REWARD: 1, RoleType.CRITIC: 1}
    return [
        WorkloadRecord(name=role.workload_name(rank), role=role, rank=rank)
        for role, count in counts.items()
        for rank in range(count)
    ]
