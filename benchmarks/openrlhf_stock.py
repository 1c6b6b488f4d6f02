"""OpenRLHF as it is, without dlrl, on a machine without a GPU: what our runs are compared with.

    python -m benchmarks.openrlhf_stock FLAGS...

It runs `train(args)` of `openrlhf.cli.train_ppo_ray` for the flags. Only the CPU module of the adapter is used, in
every process of the run, and logical GPUs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from dlrl_openrlhf import cpu
from dlrl_openrlhf.config.own_parser import own_namespace

_GPUS = 8


def main(argv: list[str]) -> None:
    cpu.prepare()
    args = cpu.without_cuda(own_namespace(argv))
    import ray
    from openrlhf.trainer.ray import vllm_engine

    ray.init(
        address="local",
        num_cpus=16,
        num_gpus=_GPUS,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=os.environ.get("STOCK_TEMP"),
        runtime_env={"worker_process_setup_hook": "dlrl_openrlhf.cpu.prepare"},
    )
    stock: Any = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class

    class CpuRollout(stock):  # type: ignore[misc]
        async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
            told = {"worker_extension_cls": "dlrl_openrlhf.engine_worker.EngineWorker", **cpu.engine_options()}
            await super().__init__(*args, **{**kwargs, **told})

    vllm_engine.RolloutRayActor = ray.remote(CpuRollout)
    from openrlhf.cli.train_ppo_ray import train

    try:
        train(args)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
