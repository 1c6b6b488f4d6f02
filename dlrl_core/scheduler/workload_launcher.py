"""Starting and killing the actors of a job."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dlrl_core.plan import WorkloadPlan
from dlrl_core.roles import MASTER, TRAINER, namespace_of
from dlrl_core.trainer import trainer_host
from dlrl_core.trainer.trainer_host import TrainerHost, TrainerLaunch
from dlrl_core.workload import workload_host
from dlrl_core.workload.actors import actor_class
from dlrl_core.workload.process import ProcessSetup
from dlrl_core.workload.workload_host import WorkloadHost, WorkloadLaunch

_NAMED_BY_RAY = ("CPU", "GPU", "memory")
_LOOK_S = 0.02


def start_workload(plan: WorkloadPlan, launch: WorkloadLaunch, group: PlacementGroup) -> Any:
    """The Ray handle of the host of that name, in its bundle; started if there is none.

    Ray never restarts it by itself: the new process would have no state.
    """
    actor = _workload_class(launch.concurrency)
    return actor.options(
        name=plan.name,
        namespace=namespace_of(launch.identity.job),
        lifetime="detached",
        get_if_exists=True,
        max_restarts=0,
        num_cpus=plan.resources.get("CPU", 0),
        num_gpus=plan.resources.get("GPU", 0),
        memory=plan.resources.get("memory"),
        resources={name: amount for name, amount in plan.resources.items() if name not in _NAMED_BY_RAY},
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=plan.bundle),
        runtime_env=_runtime_env(launch.setup),
    ).remote(launch)


def start_trainer(launch: TrainerLaunch) -> Any:
    """The Ray handle of the trainer's process, started if there is none. It reserves nothing: it mostly waits."""
    actor = _actor_class(TrainerHost, trainer_host.CONCURRENCY_GROUPS)
    return actor.options(
        name=TRAINER,
        namespace=namespace_of(launch.job),
        lifetime="detached",
        get_if_exists=True,
        max_restarts=0,
        num_cpus=0,
        runtime_env=_runtime_env(launch.setup),
    ).remote(launch)


@functools.cache
def _actor_class(host: type, groups: tuple[tuple[str, int], ...]) -> Any:
    return actor_class(host, concurrency_groups=dict(groups))


def export_classes(concurrencies: Collection[int]) -> None:
    """Export the classes of the job's processes now, so that no restart waits for it."""
    _actor_class(TrainerHost, trainer_host.CONCURRENCY_GROUPS)
    for number in concurrencies:
        _workload_class(number)


def _workload_class(concurrency: int) -> Any:
    return _actor_class(WorkloadHost, (*workload_host.CONCURRENCY_GROUPS, ("coroutines", concurrency)))


def _runtime_env(setup: ProcessSetup) -> dict[str, Any] | None:
    """The variables that a process must have when it starts; None lets Ray use an idle worker, which is quicker."""
    at_start = setup.start_env()
    return {"env_vars": at_start} if at_start else None


def find_actor(job: str, name: str) -> Any | None:
    """The living actor of that name in the job, or None."""
    try:
        return ray.get_actor(name, namespace=namespace_of(job))
    except ValueError:
        return None


def processes_of(job: str) -> dict[str, Any]:
    """The Ray handles of all processes of the job but the Master's, those that wait for resources included."""
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [one["name"] for one in named if one["namespace"] == namespace_of(job) and one["name"] != MASTER]
    found = {name: find_actor(job, name) for name in names}
    return {name: actor for name, actor in found.items() if actor is not None}


def wait_until_gone(job: str, names: Collection[str], limit_s: float) -> list[str]:
    """Wait until no actor has one of these names; returns those that are still taken after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while (taken := [name for name in names if find_actor(job, name) is not None]) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return taken


def kill_all(job: str) -> None:
    """Kill all processes of the job but the Master's."""
    for actor in processes_of(job).values():
        kill(actor)


def kill(actor: Any) -> None:
    """Kill the process now; no restart."""
    ray.kill(actor, no_restart=True)
