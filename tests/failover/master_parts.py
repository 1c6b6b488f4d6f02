"""What a Master works with, without Ray: a small job, its plan, its record in a real store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlrl_core.context import JobContext, JobRecord, JobState
from dlrl_core.master.launch import MasterLaunch, MasterLimits
from dlrl_core.master.plan_and_reservation import workload_records
from dlrl_core.plan import ClusterView, ExecutionPlan, NodeView, make_plan
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec
from dlrl_sqlite.store import SqliteStore

CLASS = ClassRef(module="m", class_name="C")


def small_job(**more: Any) -> JobSpec:
    """Two actors, each with a GPU, and what the case says."""
    role = RoleSpec(role=RoleType.ACTOR, cls=CLASS, total=2, **more.pop("role", {}))
    return JobSpec(trainer=CLASS, roles=(role,), device_per_node=2, **more)


def nodes(*names: str, gpus: float = 2) -> ClusterView:
    return ClusterView(nodes=tuple(NodeView(node_id=name, free={"GPU": gpus, "CPU": 8}) for name in names))


def plan_on(spec: JobSpec, view: ClusterView) -> ExecutionPlan:
    return make_plan(spec, view)


def launch_of(spec: JobSpec, plan: ExecutionPlan, **more: Any) -> MasterLaunch:
    return MasterLaunch(
        job="small",
        run_id="run",
        spec_json=spec.to_json(),
        plan_json=plan.to_json(),
        store_url="sqlite:///unused.db",
        python_path=(),
        state_keeper="dlrl_state.keeper:NodeMemoryKeeper",
        plugins=None,
        reservation=None,
        limits=MasterLimits(reserve_s=0.3),
        **more,
    )


def context_of(folder: Path, launch: MasterLaunch, **record: Any) -> JobContext:
    """A record of the job, with its workloads; running, unless the case says otherwise."""
    assert launch.plan_json is not None
    plan = ExecutionPlan.from_json(launch.plan_json)
    fields = {"state": JobState.RUNNING, **record}
    new = JobRecord(
        name=launch.job,
        run_id=launch.run_id,
        spec_json=launch.spec_json,
        plan_json=launch.plan_json,
        plan_number=1,
        store_url=launch.store_url,
        **fields,
    )
    return JobContext.create(SqliteStore(folder / "context.db"), new, workload_records(plan))


class Call:
    """A method of an actor stand-in: `handle.method.remote(...)`."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.remote = method
