"""verl as it is, without dlrl, on a machine without a GPU: what our runs are compared with.

    python -m benchmarks.verl_stock [--config-name=NAME] OVERRIDES...

It runs verl's own `main_ppo` with its older trainer, `RayPPOTrainer`. Only the CPU module of the adapter is used, in
every process of the run, and logical GPUs. STOCK_TEMP is Ray's folder; with STOCK_LOGS its workers are heard.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from dlrl_verl import cpu

_GPUS = 8
_ASK_S = 20.0
_PR_SET_CHILD_SUBREAPER = 36
_SHARED = ("/dev/shm/psm_", "/dev/shm/sem.mp-")


def main(argv: list[str]) -> None:
    cpu.prepare()
    config = cpu.without_cuda(_composed(argv))
    config.trainer.use_v1 = False
    from omegaconf import open_dict
    from verl.trainer import main_ppo

    with open_dict(config):
        config.ray_kwargs.ray_init = {**config.ray_kwargs.ray_init, **_own_ray()}
    _adopt_orphans()
    os.environ["RAY_kill_child_processes_on_worker_exit"] = "false"  # noqa: SIM112 - Ray's own name
    try:
        main_ppo.main.__wrapped__(config)
    finally:
        _end_ray()


def _composed(argv: list[str]) -> Any:
    """The config that `python -m verl.trainer.main_ppo` has for the same words."""
    from hydra import compose, initialize_config_module

    names = [word.partition("=")[2] for word in argv if word.startswith("--config-name=")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose((["ppo_trainer", *names])[-1], [word for word in argv if not word.startswith("--")])


def _own_ray() -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": 16,
        "num_gpus": _GPUS,
        "include_dashboard": False,
        "log_to_driver": "STOCK_LOGS" in os.environ,
        "_temp_dir": os.environ.get("STOCK_TEMP"),
        "runtime_env": {"worker_process_setup_hook": "dlrl_verl.cpu.prepare"},
    }


def _end_ray() -> None:
    """With all that it started. Engines of vLLM are asked to end; what they leave of shared memory is removed."""
    import ray

    shared = _shared_memory()
    ray.shutdown()
    kill_at = time.monotonic() + _ASK_S
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate() if time.monotonic() < kill_at else process.kill()
        psutil.wait_procs(left, timeout=1.0)
    for path in shared:
        path.unlink(missing_ok=True)


def _shared_memory() -> set[Path]:
    """Segments and semaphores of Python's multiprocessing that the processes of this run have mapped."""
    found = set[Path]()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found |= {Path(one.path) for one in process.memory_maps() if one.path.startswith(_SHARED)}
    return found


def _adopt_orphans() -> None:
    """Whoever loses its parent becomes a child of this process, so that it is found at the end."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
