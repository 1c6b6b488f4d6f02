"""What the tests of verl's config share: the overrides of its launch scripts, and short ways to read them.

`data/0.9.1.json` has the overrides of every launch script in verl's examples/ppo_trainer and examples/grpo_trainer, as
bash makes them. The package ships no examples: they are of commit 1dda039b9 of its repository, the nearest one known.
`grad_offload`, which 0.9.1 dropped, is left out. Two scripts of which verl refuses the defaults have a variable set
that they offer: ROLLOUT_DP=8 (run_qwen3_235b_a22b_megatron), INFER_BACKEND=trtllm (run_qwen3_30b_a3b_megatron).
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_verl.config import read

MODULE = "verl.trainer.main_ppo"
SCRIPTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "data" / "0.9.1.json").read_text())

REFUSED = {
    "grpo_trainer/run_gpt_oss_20b_fsdp": "'actor_rollout_ref.actor.fsdp_config.model_dtype' (word 23) is there already",
    "grpo_trainer/run_kimi_k2_6_glm5_1_megatron_lite": "Could not find 'actor/mlite_actor'",
    "grpo_trainer/run_qwen3_5_35b_megatron_lite": "Could not find 'actor/mlite_actor'",
}
"""Scripts that verl itself refuses: it takes one key for new that is not, or its config is in another package."""

UNSUPPORTED = {
    "grpo_trainer/run_qwen3_30b_a3b_megatron": "'actor_rollout_ref.rollout.name=trtllm'",
    "grpo_trainer/run_qwen3_5-122b-a10b_veomni": "'actor_rollout_ref.rollout.name=sglang'",
    "grpo_trainer/run_qwen3_5_35b_a3b_veomni": "'actor_rollout_ref.rollout.name=sglang'",
}
"""Scripts that verl would run and dlrl can't: their rollouts are not on vLLM."""

NOT_COMMITTED = {
    "grpo_trainer/run_qwen2-7b_math_megatron_fsdp": "'actor_rollout_ref.actor.megatron.use_megatron_fsdp=True'",
}
"""Scripts with an engine whose state dlrl can't commit."""

PLANNED = [name for name in SCRIPTS if name not in {**REFUSED, **UNSUPPORTED, **NOT_COMMITTED}]

SMALL = ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.use_dynamic_bsz=True", "critic.use_dynamic_bsz=True"]  # fmt: skip
"""Overrides without which verl starts nothing."""

WHOLE: dict[str, Any] = {
    "actor_rollout_ref": {
        "hybrid_engine": True,
        "model": {"path": "tiny", "lora_rank": 0, "use_remove_padding": False},
        "actor": {
            "strategy": "megatron",
            "use_dynamic_bsz": False,
            "use_kl_loss": False,
            "ppo_mini_batch_size": 8,
            "ppo_micro_batch_size": None,
            "ppo_micro_batch_size_per_gpu": 2,
            "megatron": {
                "tensor_model_parallel_size": 2,
                "pipeline_model_parallel_size": 1,
                "context_parallel_size": 1,
            },
        },
        "ref": {"log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": 2},
        "rollout": {
            "name": "vllm",
            "mode": "async",
            "n": 1,
            "temperature": 1.0,
            "tensor_model_parallel_size": 2,
            "data_parallel_size": 1,
            "pipeline_model_parallel_size": 1,
            "expert_parallel_size": 1,
            "n_gpus_per_node": "${oc.select:trainer.n_gpus_per_node,8}",
            "log_prob_micro_batch_size": None,
            "log_prob_micro_batch_size_per_gpu": 2,
            "val_kwargs": {"do_sample": False},
        },
    },
    "algorithm": {"adv_estimator": "gae", "use_kl_in_reward": False},
    "critic": {
        "enable": None,
        "strategy": "${actor_rollout_ref.actor.strategy}",
        "use_dynamic_bsz": "${actor_rollout_ref.actor.use_dynamic_bsz}",
        "ppo_mini_batch_size": 8,
        "ppo_micro_batch_size": None,
        "ppo_micro_batch_size_per_gpu": 2,
        "megatron": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "context_parallel_size": 1},
    },
    "data": {"train_batch_size": 8},
    "reward": {
        "num_workers": 2,
        "reward_model": {
            "enable": False,
            "enable_resource_pool": False,
            "nnodes": 0,
            "n_gpus_per_node": 8,
            "model_path": None,
            "rollout": {"name": "???", "tensor_model_parallel_size": 2, "data_parallel_size": 1},
        },
    },
    "trainer": {
        "nnodes": 1,
        "n_gpus_per_node": 4,
        "device": "cuda",
        "use_v1": True,
        "v1": {"trainer_mode": "sync"},
    },
}
"""As composed as a plan needs it: PPO on Megatron, 4 devices."""

REWARD_MODEL = {
    "reward__reward_model__enable": True,
    "reward__reward_model__model_path": "scores",
    "reward__reward_model__rollout__name": "vllm",
}
"""What `changed` takes for a reward model instead of a function."""


needs_verl = pytest.mark.framework(needs="verl")
without_verl = pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed here")


def changed(**values: Any) -> dict[str, Any]:
    """The whole config with other values, by names such as trainer__nnodes."""
    config = copy.deepcopy(WHOLE)
    for name, value in values.items():
        *above, last = name.split("__")
        section = config
        for part in above:
            section = section.setdefault(part, {})
        section[last] = value
    return config


def read_words(*words: str) -> dict[str, Any]:
    return read(ConfigSource(ConfigKind.WORDS, words))


def read_mapping(config: Mapping[str, Any]) -> dict[str, Any]:
    return read(ConfigSource(ConfigKind.MAPPING, config))


def problems_of(*words: str) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        read_words(*SMALL, *words)
    return caught.value.problems


def job_of(config: Any) -> Any:
    return RLJobBuilder().framework("verl").config(config).build()


@functools.cache
def job_of_script(name: str) -> Any:
    """Composing takes a second: each script is read once for all tests."""
    return job_of(SCRIPTS[name])
