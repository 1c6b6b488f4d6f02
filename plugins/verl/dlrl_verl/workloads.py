"""verl's own workers as workloads: each has one of them inside, and what verl registers as its methods.

The policy and the rewards have modules of their own: a process imports what its role needs, and no more.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import ray
from verl.single_controller.base.decorator import MAGIC_ATTR
from verl.workers.engine_workers import TrainingWorker

from dlrl_core import BaseWorkload, trainer_invocation
from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_verl import cpu, engine_state

T = TypeVar("T", bound=type)
M = TypeVar("M", bound=Callable[..., Any])

READING = {
    "compute_log_prob",
    "compute_ref_log_prob",
    "infer_batch",
    "query_collect_info",
    "query_dispatch_info",
    "save_checkpoint",
    "set_loss_fn",
    "start_profile",
    "step_profile",
    "stop_profile",
}
"""The methods of verl's workers that leave trained state as it is: they run while a commit is being copied.

With offloading, some of them load weights and offload them again. That leaves the captured memory as it was, since it
is the one on the host (`engine_state`): FSDP makes new tensors on the way there and back, so that the captured ones
stay; Megatron copies to the device, and back to the same memory of the host, byte for byte what is there. None of
them touches the optimizer. All others count as changing state: `to` too, which frees memory of the device.
"""


def reading(method: M) -> M:
    """Mark a method of a workload as one that does not change its state."""
    return trainer_invocation(changes_state=False)(method)


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
    return reading(call) if public in READING else call


class WorkerWorkload(BaseWorkload):
    """A worker of verl's in a process of its own: one rank of its role's process group."""

    worker_class: ClassVar[Any]
    worker: Any = None

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Make the worker, with what verl's trainer has for it."""
        os.environ.update(_WORKER_ENVIRONMENT, RAY_LOCAL_WORLD_SIZE=str(self.local_world_size))
        os.environ.pop("LOCAL_WORLD_SIZE", None)
        self.worker = self.worker_class(*args, **kwargs)

    @reading
    def lacks_gpu(self) -> bool:
        """Whether the models have to run on a CPU; the trainer's own process never has a GPU."""
        return cpu.is_needed()

    @reading
    def job_and_run(self) -> tuple[str, str]:
        """The job's name, and what tells this run of it from all others."""
        return self._identity.job, self._identity.run_id

    @reading
    def place(self) -> tuple[str, tuple[str, ...]]:
        """The node it is on, and its devices there."""
        return ray.get_runtime_context().get_node_id(), self.device_ids


_WORKER_ENVIRONMENT = {"WG_BACKEND": "ray", "LOCAL_RANK": "0"}
"""As verl's own worker groups have it: each worker sees just its device."""


@exposing(TrainingWorker)
class CriticWorkload(WorkerWorkload):
    """The critic."""

    worker_class = TrainingWorker

    def capture_state(self) -> CapturedState:
        return engine_state.capture(self.worker.engine)

    def restore_state(self, saved: SavedState) -> None:
        engine_state.restore(self.worker.engine, saved)
