"""The environment that verl's command gives to all processes of a job."""

from __future__ import annotations

import os

from dlrl_verl.config.settings import ROLLOUT, Settings

OWN_ENV = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
    "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
    "HSA_NO_SCRATCH_RECLAIM": "1",
}
"""`PPO_RAY_RUNTIME_ENV` of verl 0.9, without what depends on the device; what the shell has already stays as it is."""


def env_of(settings: Settings) -> dict[str, str]:
    """verl's own, then what exact repetition needs, then what the user said."""
    own = {name: os.environ.get(name, value) for name, value in OWN_ENV.items()}
    return {**own, **_exact(settings), **settings.env}


def _exact(settings: Settings) -> dict[str, str]:
    if not settings[f"{ROLLOUT}.full_determinism"]:
        return {}
    seed = str(settings.number(f"{ROLLOUT}.seed", 42))
    return {"VERL_FULL_DETERMINISM": "1", "VLLM_BATCH_INVARIANT": "1", "PYTHONHASHSEED": seed}
