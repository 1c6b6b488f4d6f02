"""OpenRLHF's own vLLM actor as a workload. Imports no DeepSpeed, as OpenRLHF's does not."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from openrlhf.trainer.ray import vllm_engine

from dlrl_core import BaseWorkload
from dlrl_core.trainer import WorkloadHandle
from dlrl_core.workload.invocation import undecorated
from dlrl_openrlhf import cpu
from dlrl_openrlhf.seats import Seat, devices_of
from dlrl_vllm.engine_process import end_with_engine, own_engine

RolloutRayActor: Any = undecorated(vllm_engine.RolloutRayActor)

_ENGINE_WORKER = "dlrl_openrlhf.engine_worker.EngineWorker"
"""By name: vLLM imports it in the engine's own process, and this one needs none of it."""
_SEVERAL_DEVICES = "mp"
"""How vLLM runs an engine over several devices: with processes of its own, not with Ray's, which dlrl would not see."""


class RolloutWorkload(BaseWorkload, RolloutRayActor):  # type: ignore[misc]
    """A vLLM engine, or, with tensor parallelism, one of the devices of an engine: the first of them runs it."""

    async def start_engine(self, engine: dict[str, Any], others: list[WorkloadHandle]) -> None:
        """Start vLLM with what OpenRLHF's own `create_vllm_engines` would have given to it.

        `others` are the workloads that have the rest of the engine's devices, where each has one.
        """
        own_engine("dlrl_openrlhf.cpu")
        if engine["tensor_parallel_size"] > 1:
            seats = [self.seat(), *await asyncio.gather(*(other.seat.remote() for other in others))]
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices_of(seats, engine["tensor_parallel_size"]))
            engine = {**engine, "distributed_executor_backend": _SEVERAL_DEVICES}
        told = {**engine, **cpu.engine_options(), "worker_extension_cls": _ENGINE_WORKER}
        await RolloutRayActor.__init__(self, **told)
        end_with_engine()

    def seat(self) -> Seat:
        """Where this workload sits."""
        return Seat(self.name, ray.get_runtime_context().get_node_id(), self.device_ids)

    def _configure_device_env(self, backend: str, bundle_indices: Any, num_gpus: float) -> None:
        """OpenRLHF would show an engine over several devices only the first, where Ray is told to show all."""
        if backend != _SEVERAL_DEVICES:
            super()._configure_device_env(backend, bundle_indices, num_gpus)
