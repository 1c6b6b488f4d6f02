"""OpenRLHF's own vLLM actor as a workload. Imports no DeepSpeed, as OpenRLHF's does not."""

from __future__ import annotations

import os
from typing import Any

from openrlhf.trainer.ray import vllm_engine

from dlrl_core import BaseWorkload
from dlrl_core.workload.class_loader import undecorated
from dlrl_core.workload.engine_process import end_with_engine, own_engine
from dlrl_openrlhf import cpu

RolloutRayActor: Any = undecorated(vllm_engine.RolloutRayActor)

_ENGINE_WORKER = "dlrl_openrlhf.engine_worker.EngineWorker"
"""By name: vLLM imports it in the engine's own process, and this one needs none of it."""


class RolloutWorkload(BaseWorkload, RolloutRayActor):  # type: ignore[misc]
    """A vLLM engine, or, with tensor parallelism, one of the devices of an engine: the first of them runs it."""

    async def start_engine(self, engine: dict[str, Any]) -> None:
        """Start vLLM with what OpenRLHF's own `create_vllm_engines` would have given to it."""
        own_engine("dlrl_openrlhf.cpu")
        size = engine["tensor_parallel_size"]
        if size > 1:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self._devices(size))
            engine = {**engine, "distributed_executor_backend": "mp"}
        told = {**engine, **cpu.engine_options(), "worker_extension_cls": _ENGINE_WORKER}
        await RolloutRayActor.__init__(self, **told)
        end_with_engine()

    def _devices(self, size: int) -> tuple[str, ...]:
        """The engine's devices: its own; where each is shared with other roles, those of its next workloads too."""
        if len(self.device_ids) == size:
            return self.device_ids
        first = int(self.device_ids[0])
        return tuple(str(first + number) for number in range(size))
