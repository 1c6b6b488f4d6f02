"""What each process of a job is started with. The same for whoever starts it: the driver, or a Master later.

Starting is asking for a process of that name: the first who asks gets it started, the next one gets the same. So
the driver can ask for all of them while the Master's own process still comes up, and a Master that comes up
asks again and misses none.
"""

from __future__ import annotations

from typing import Any

from dlrl_core.failover import declared_scopes
from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan, WorkloadPlan
from dlrl_core.roles import TRAINER, RoleType
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.reservation import release_all
from dlrl_core.spec import JobSpec, RoleSpec, VisibleDevices
from dlrl_core.trainer.commit_budget import CommitPace
from dlrl_core.trainer.trainer_host import TrainerLaunch
from dlrl_core.workload.base_workload import WorkloadIdentity
from dlrl_core.workload.process import ProcessSetup, all_devices_env
from dlrl_core.workload.workload_host import WorkloadLaunch


def start_processes(launch: MasterLaunch, spec: JobSpec, plan: ExecutionPlan, group: Any) -> dict[str, Any]:
    """The Ray handles of all processes of the job but the Master's, by name; the trainer's under 'trainer'."""
    handles = {workload.name: start_workload(launch, spec, workload, group) for workload in plan.workloads}
    handles[TRAINER] = start_trainer(launch, spec, plan)
    return handles


def start_workload(
    launch: MasterLaunch, spec: JobSpec, plan: WorkloadPlan, group: Any, incarnation: int = 0, term: int = 0
) -> Any:
    """The Ray handle of one workload's process; it loads its class as soon as it is up."""
    handle = workload_launcher.start_workload(plan, _workload(launch, spec, plan, incarnation, term), group)
    handle.load.remote()
    return handle


def start_trainer(launch: MasterLaunch, spec: JobSpec, plan: ExecutionPlan, incarnation: int = 0) -> Any:
    handle = workload_launcher.start_trainer(_trainer(launch, spec, plan, incarnation))
    handle.load.remote()
    return handle


def end_all(launch: MasterLaunch) -> None:
    """Kill all of them that live and give back the reservation; for whoever started them and can't go on."""
    try:
        workload_launcher.kill_all(launch.job)
    finally:
        release_all(launch.job, launch.run_id)


def _workload(launch: MasterLaunch, spec: JobSpec, plan: WorkloadPlan, incarnation: int, term: int) -> WorkloadLaunch:
    role = spec.role(plan.role)
    assert role is not None
    return WorkloadLaunch(
        identity=WorkloadIdentity.of(plan, job=launch.job, run_id=launch.run_id, incarnation=incarnation),
        term=term,
        cls=role.cls,
        config=spec.config,
        setup=_setup(launch, spec, _environment(spec, role, plan.part)),
        device_type=spec.device_type,
        visible_devices=role.visible_devices.value,
        concurrency=role.concurrency,
        state_keeper=launch.state_keeper,
        durable_folder=launch.durable_folder,
        allow_chaos=spec.allow_chaos,
        report_period_s=min(5.0, role.silence_limit / 6),
    )


def _environment(spec: JobSpec, role: RoleSpec, part: str | None) -> dict[str, str]:
    request = role.placement_requests[f"{role.role.value}.{part}" if part else role.role.value]
    sees_all = role.visible_devices is VisibleDevices.NODE
    return {**(all_devices_env() if sees_all else {}), **spec.global_env, **request.env}


def _trainer(launch: MasterLaunch, spec: JobSpec, plan: ExecutionPlan, incarnation: int) -> TrainerLaunch:
    assert spec.trainer is not None
    return TrainerLaunch(
        job=launch.job,
        run_id=launch.run_id,
        cls=spec.trainer,
        config=spec.config,
        setup=_setup(launch, spec, spec.global_env),
        role_classes={role.role: role.cls for role in spec.roles},
        resources={role: plan.of_role(role)[0].resources for role in plan.roles},
        scopes=declared_scopes(spec),
        state_keeper=launch.state_keeper,
        state_bytes=_state_bytes(spec, plan),
        durable_every=spec.commits.durable_every,
        neighbours=spec.commits.neighbours,
        failure_domain=spec.commits.failure_domain,
        pace=CommitPace(**spec.commits.model_dump(include={"every", "budget", "at_least_s"})),
        allow_chaos=spec.allow_chaos,
        incarnation=incarnation,
    )


def _state_bytes(spec: JobSpec, plan: ExecutionPlan) -> dict[str, int]:
    """Of each node, the bytes of one commit of its workloads, as far as the roles say how large they are."""
    ranks: dict[tuple[int, RoleType], list[int]] = {}
    for workload in plan.workloads:
        ranks.setdefault((workload.node, workload.role), []).append(workload.rank)
    needs: dict[str, int] = {}
    for (node, name), here in ranks.items():
        role = spec.role(name)
        if role is not None and role.state_size is not None:
            node_id = plan.nodes[node].node_id
            needs[node_id] = needs.get(node_id, 0) + role.state_size.size_on(here)
    return needs


def _setup(launch: MasterLaunch, spec: JobSpec, env: dict[str, str]) -> ProcessSetup:
    return ProcessSetup(env=env, python_path=launch.python_path, plugins=launch.plugins, framework=spec.framework)
