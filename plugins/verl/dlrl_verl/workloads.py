"""verl's own workers as workloads: each has one of them inside, and what verl registers as its methods."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import ray
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from dlrl_core import BaseWorkload
from dlrl_verl import cpu, engine_state
from dlrl_verl.weight_sync import ServerHandle, sending_weights

T = TypeVar("T", bound=type)


def exposing(worker_class: type) -> Callable[[T], T]:
    """A class decorator: all methods that verl registers for its worker groups, as methods of the workload."""

    def decorate(workload: T) -> T:
        for name in dir(worker_class):
            method = getattr(worker_class, name, None)
            public = name.lstrip("_")
            if hasattr(method, MAGIC_ATTR) and public not in vars(workload):
                setattr(workload, public, _delegate(name, public, method))
        return workload

    return decorate


def _delegate(name: str, public: str, method: Any) -> Callable[..., Any]:
    def call(self: WorkerWorkload, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.worker, name)(*args, **kwargs)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    call.__name__ = call.__qualname__ = public
    call.__doc__ = getattr(method, "__doc__", None)
    return call


class WorkerWorkload(BaseWorkload):
    """A worker of verl's in a process of its own: one rank of its role's process group."""

    worker_class: ClassVar[Any]
    worker: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Make the worker, with what verl's trainer has for it."""
        os.environ.update(_WORKER_ENVIRONMENT, RAY_LOCAL_WORLD_SIZE=str(self.local_world_size))
        os.environ.pop("LOCAL_WORLD_SIZE", None)
        self.worker = self.worker_class(*args, **kwargs)

    def lacks_gpu(self) -> bool:
        """Whether the models have to run on a CPU; the trainer's own process never has a GPU."""
        return cpu.is_needed()

    def job_and_run(self) -> tuple[str, str]:
        """The job's name, and what tells this run of it from all others."""
        return self._identity.job, self._identity.run_id

    def place(self) -> tuple[str, tuple[str, ...]]:
        """The node it is on, and its devices there."""
        return ray.get_runtime_context().get_node_id(), self.device_ids


_WORKER_ENVIRONMENT = {"WG_BACKEND": "ray", "LOCAL_RANK": "0"}
"""As verl's own worker groups have it: each worker sees just its device."""


@exposing(TrainingWorker)
class CriticWorkload(WorkerWorkload):
    """The critic."""

    worker_class = TrainingWorker

    def save_state(self, path: str) -> None:
        engine_state.save(self.worker.engine, path)

    def load_state(self, path: str) -> None:
        engine_state.load(self.worker.engine, path)


@exposing(ActorRolloutRefWorker)
class ActorWorkload(WorkerWorkload):
    """The policy, with the reference beside it where verl has it so. It gives its weights to the rollout servers."""

    worker_class = ActorRolloutRefWorker

    def init_model(self) -> None:
        """As verl's, but for where weights are handed over: two jobs of one driver have the same Ray job."""
        self.worker.init_model()
        rollout, job_id = self.worker.rollout, ray.get_runtime_context().get_job_id()
        rollout.zmq_handle = rollout.zmq_handle.replace(job_id, self._identity.run_id)

    def meet_servers(self, servers: Sequence[Sequence[Any]]) -> None:
        """These processes are the servers now: for each replica, that of each of its nodes."""
        rollout = self.worker.rollout
        actor = servers[rollout.replica_rank][rollout.node_rank]
        known: ServerHandle | None = rollout.server_handle
        if known is None or known.is_gone or known.actor_id != actor._actor_id.hex():
            rollout.server_handle = ServerHandle(actor)

    def update_weights(self, global_steps: int | None = None, mode: str = "auto", only: Sequence[int] = ()) -> None:
        """Give the weights to this rank's server, and get along without one that dies meanwhile.

        With `only`, to the servers of these replicas; the ranks of others just take part in gathering the weights.
        """
        rollout = self.worker.rollout
        is_meant = not only or rollout.replica_rank in only
        with sending_weights(self.worker, is_meant=is_meant):
            asyncio.run(self.worker.update_weights(global_steps=global_steps, mode=mode))

    def save_state(self, path: str) -> None:
        engine_state.save(self.worker.actor.engine, path)

    def load_state(self, path: str) -> None:
        engine_state.load(self.worker.actor.engine, path)


class RewardWorkload(BaseWorkload):
    """One of those who compute rewards, by the user's function or verl's own."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self._built = asyncio.Event()
        self._worker: Any = None

    async def build(self, *args: Any, **kwargs: Any) -> None:
        self._worker = RewardLoopWorker(*args, **kwargs)
        self._built.set()

    async def compute_score(self, data: Any) -> Any:
        await self._built.wait()  # who asks may find a new process before it is ready
        return await self._worker.compute_score(data)

    async def compute_score_batch(self, data: Any) -> Any:
        await self._built.wait()
        return await self._worker.compute_score_batch(data)
