"""What each process of a job is started with. The same for whoever starts it: the driver, or a Master later.

Starting is asking for a process of that name: the first who asks gets it started, the next one gets the same. So
the driver can ask for all of them while the Master's own process still comes up, and a Master that comes up
asks again and misses none.
"""

from __future__ import annotations

from typing import Any

from dlrl_core.master.launch import MasterLaunch
from dlrl_core.plan import ExecutionPlan, WorkloadPlan
from dlrl_core.scheduler import workload_launcher
from dlrl_core.scheduler.names import TRAINER
from dlrl_core.scheduler.reservation import release
from dlrl_core.spec import JobSpec
from dlrl_core.trainer.trainer_host import TrainerLaunch
from dlrl_core.workload.identity import WorkloadIdentity
from dlrl_core.workload.process import ProcessSetup
from dlrl_core.workload.workload_host import WorkloadLaunch


def start_processes(launch: MasterLaunch, spec: JobSpec, plan: ExecutionPlan) -> dict[str, Any]:
    """The Ray handles of all processes of the job but the Master's, by name; the trainer's under 'trainer'."""
    handles = {
        workload.name: workload_launcher.start_workload(workload, _workload(launch, spec, workload), launch.reservation)
        for workload in plan.workloads
    }
    handles[TRAINER] = workload_launcher.start_trainer(_trainer(launch, spec, plan))
    for handle in handles.values():
        handle.load.remote()  # as soon as the process is up, without waiting for the others
    return handles


def end_all(launch: MasterLaunch) -> None:
    """Kill all of them that live and give back the reservation; for whoever started them and can't go on."""
    plan = ExecutionPlan.from_json(launch.plan_json)
    for name in process_names(plan):
        actor = workload_launcher.find_actor(launch.job, name)
        if actor is not None:
            workload_launcher.kill(actor)
    release(launch.reservation)


def process_names(plan: ExecutionPlan) -> list[str]:
    """The names of all processes of the job but the Master's."""
    return [TRAINER, *(workload.name for workload in plan.workloads)]


def _workload(launch: MasterLaunch, spec: JobSpec, plan: WorkloadPlan) -> WorkloadLaunch:
    role = spec.role(plan.role)
    assert role is not None
    return WorkloadLaunch(
        identity=WorkloadIdentity(
            job=launch.job,
            run_id=launch.run_id,
            name=plan.name,
            role=str(plan.role),
            rank=plan.rank,
            world_size=plan.world_size,
            local_rank=plan.local_rank,
            local_world_size=plan.local_world_size,
            device_collocation=plan.device_collocation,
        ),
        cls=role.cls,
        config=spec.config,
        setup=_setup(launch, spec, {**spec.global_env, **role.env}),
    )


def _trainer(launch: MasterLaunch, spec: JobSpec, plan: ExecutionPlan) -> TrainerLaunch:
    assert spec.trainer is not None
    return TrainerLaunch(
        job=launch.job,
        run_id=launch.run_id,
        cls=spec.trainer,
        config=spec.config,
        setup=_setup(launch, spec, spec.global_env),
        role_classes={role.role: role.cls for role in spec.roles},
        resources={role: plan.of_role(role)[0].resources for role in plan.roles},
    )


def _setup(launch: MasterLaunch, spec: JobSpec, env: dict[str, str]) -> ProcessSetup:
    return ProcessSetup(env=env, python_path=launch.python_path, plugins=launch.plugins, framework=spec.framework)
