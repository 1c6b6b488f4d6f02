"""A tiny PPO with real verl: its overrides, and the job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework_run import BUDGET, Watched, environment

from dlrl_core import RLJobBuilder

REWARD = Path(__file__).parents[2] / "examples" / "verl_ppo" / "reward.py"

MEGATRON = """
--config-name=ppo_megatron_trainer
actor_rollout_ref.actor.megatron.dtype=float32 actor_rollout_ref.ref.megatron.dtype=float32
critic.megatron.dtype=float32
actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2
actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2 critic.megatron.tensor_model_parallel_size=2
actor_rollout_ref.actor.megatron.sequence_parallel=False actor_rollout_ref.ref.megatron.sequence_parallel=False
critic.megatron.sequence_parallel=False
"""

FSDP = """
actor_rollout_ref.actor.strategy=fsdp2 critic.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2
actor_rollout_ref.actor.fsdp_config.model_dtype=fp32 actor_rollout_ref.ref.fsdp_config.model_dtype=fp32
critic.fsdp.model_dtype=fp32 critic.forward_micro_batch_size_per_gpu=4
actor_rollout_ref.model.enable_gradient_checkpointing=False critic.model.enable_gradient_checkpointing=False
"""

COMMON = """
algorithm.adv_estimator=gae algorithm.use_kl_in_reward=True
data.train_batch_size=8 data.max_prompt_length=32 data.max_response_length=16 data.dataloader_num_workers=0
actor_rollout_ref.model.use_remove_padding=False critic.model.use_remove_padding=False
actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4
critic.ppo_mini_batch_size=8 critic.ppo_micro_batch_size_per_gpu=4
actor_rollout_ref.actor.optim.lr=1e-3 critic.optim.lr=1e-3
actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.calculate_log_probs=True
actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.dtype=float32
actor_rollout_ref.rollout.max_model_len=64 actor_rollout_ref.rollout.max_num_seqs=16
actor_rollout_ref.rollout.max_num_batched_tokens=256 actor_rollout_ref.rollout.load_format=auto
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
actor_rollout_ref.rollout.agent.num_workers=1 reward.num_workers=1
trainer.logger=[console] trainer.nnodes=1 trainer.n_gpus_per_node=2
trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1
"""


def overrides(engine: str, assets: Path, out: Path, *words: str, **more: Any) -> list[str]:
    """verl's own overrides for the tiny model; `trainer__save_freq=2` adds `trainer.save_freq=2`."""
    told = {
        "data.train_files": assets / "train.parquet",
        "data.val_files": assets / "test.parquet",
        "actor_rollout_ref.model.path": assets / "model",
        "critic.model.path": assets / ("critic" if engine is FSDP else "model"),
        "reward.reward_model.model_path": assets / "reward_model",
        "reward.custom_reward_function.path": REWARD,
        "trainer.default_local_dir": out / "checkpoints",
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return [*engine.split(), *COMMON.split(), *(f"{name}={value}" for name, value in told.items()), *words]


def builder(words: Sequence[str], **env: str) -> RLJobBuilder:
    """The job, as a user would say it."""
    return RLJobBuilder().framework("verl").config(list(words)).global_env({**environment(), **env})


def start(name: str, words: Sequence[str], **env: str) -> Watched:
    """Submit the job with budgets that allow what tests do to it."""
    job = builder(words, **env).commits(every=1).restart_budget(**BUDGET).allow_chaos().build()
    return Watched(job.submit(name, blocking=False))
