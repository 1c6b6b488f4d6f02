"""What vLLM loads into each worker of an engine, by name: OpenRLHF's way to get new weights."""

from __future__ import annotations

from dlrl_core.workload.engine_process import attach
from dlrl_openrlhf import cpu

attach()  # if vLLM was told to load no plugins
cpu.prepare_engine()

from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap  # noqa: E402


class EngineWorker(cpu.engine_worker(WorkerWrap)):  # type: ignore[misc]
    """OpenRLHF's extension of a vLLM worker."""
