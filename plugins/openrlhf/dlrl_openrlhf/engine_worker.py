"""What vLLM loads into each worker of an engine, by name: OpenRLHF's way to get new weights."""

from __future__ import annotations

from typing import Any

from dlrl_openrlhf import cpu
from dlrl_openrlhf.weight_group import end_group
from dlrl_vllm.engine_process import attach

attach()  # if vLLM was told to load no plugins
cpu.prepare_engine()

from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap  # noqa: E402


class EngineWorker(cpu.engine_worker(WorkerWrap)):  # type: ignore[misc]
    """OpenRLHF's extension of a vLLM worker."""

    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """Meet the policy, once more if it died or another engine did: the group before that is of no use."""
        end_group(getattr(self, "_model_update_group", None))
        self._model_update_group = None
        super().init_process_group(*args, **kwargs)
