"""A tiny PPO with real OpenRLHF: its flags, and the job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework_run import BUDGET, Watched, environment

from dlrl_core import RLJobBuilder


def flags(assets: Path, out: Path, **more: Any) -> list[str]:
    """OpenRLHF's own flags for the tiny model; `train__async_enable=True` adds `--train.async_enable`."""
    told = {
        "ref.num_gpus_per_node": 1,
        "reward.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "actor.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "vllm.tensor_parallel_size": 1,
        "vllm.enforce_eager": True,
        "vllm.sync_backend": "gloo",
        "actor.model_name_or_path": assets / "policy",
        "reward.model_name_or_path": assets / "reward",
        "ckpt.output_dir": out / "final",
        "ckpt.path": out / "ckpt",
        "train.micro_batch_size": 2,
        "train.batch_size": 8,
        "rollout.micro_batch_size": 4,
        "rollout.batch_size": 8,
        "rollout.max_new_tokens": 16,
        "data.max_len": 64,
        "data.max_samples": 64,
        "data.prompt_dataset": assets / "prompts.jsonl",
        "data.input_key": "input",
        "data.label_key": "label",
        "ds.zero_stage": 2,
        "ds.param_dtype": "bf16",
        "ds.attn_implementation": "eager",
        "actor.adam.lr": 1e-3,
        "critic.adam.lr": 1e-3,
        "algo.kl.init_coef": 0.01,
        "logger.logging_steps": 1,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    words: list[str] = []
    for name, value in told.items():
        if value is None or value is False:
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def builder(words: Sequence[str], **env: str) -> RLJobBuilder:
    """The job, as a user would say it."""
    return RLJobBuilder().framework("openrlhf").config(list(words)).global_env({**environment(), **env})


def start(name: str, words: Sequence[str], **env: str) -> Watched:
    """Submit the job with budgets that allow what tests do to it."""
    job = builder(words, **env).commits(every=1).restart_budget(**BUDGET).allow_chaos().build()
    return Watched(job.submit(name, blocking=False))
