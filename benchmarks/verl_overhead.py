"""What dlrl costs verl: the time of a step, and until the first one is done, over verl alone.

    .venvs/verl/bin/python -m benchmarks.verl_overhead [--model tiny] [--model 75m]

Both sides run the same overrides with models of examples/verl_ppo on Megatron, on a local Ray with logical GPUs, in
turns of seconds. Times are those of verl's own tensorboard log, without those of the other's turns. Under dlrl steps
are also committed, as often as the default budget allows. The tiny model is trained with PPO and tensor parallel 2.
With 75 million weights it is GRPO with a reference and without a critic, on one rank and with one vLLM server: two
jobs are alive at once, and have to fit into the memory of a small machine. They take up to 17 GB; with two
ranks and two servers it was 20 GB, without a reference.
"""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.overhead import ROOT, Framework, compare

OVERRIDES = """
--config-name=ppo_megatron_trainer trainer.use_v1=False
data.max_prompt_length=32 data.dataloader_num_workers=0
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1
actor_rollout_ref.rollout.max_model_len=96 actor_rollout_ref.rollout.max_num_seqs=32
actor_rollout_ref.rollout.max_num_batched_tokens=512 actor_rollout_ref.rollout.load_format=auto
actor_rollout_ref.rollout.agent.num_workers=1 reward.num_workers=1
trainer.logger=[tensorboard] trainer.nnodes=1
trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1 trainer.total_epochs=24
"""
TINY = """
algorithm.adv_estimator=gae algorithm.use_kl_in_reward=True
trainer.n_gpus_per_node=2 trainer.total_training_steps=44
actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2
data.train_batch_size=32 data.max_response_length=32 actor_rollout_ref.actor.ppo_mini_batch_size=32
actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2 critic.megatron.tensor_model_parallel_size=2
actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
critic.ppo_mini_batch_size=32 critic.ppo_micro_batch_size_per_gpu=8
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
"""
LARGE = """
algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=True
trainer.n_gpus_per_node=1 trainer.total_training_steps=32
data.train_batch_size=4 data.max_response_length=16 actor_rollout_ref.rollout.n=2
actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=64
"""


def words(more: str, assets: Path, out: Path) -> list[str]:
    paths = {
        "data.train_files": assets / "train.parquet",
        "data.val_files": assets / "test.parquet",
        "actor_rollout_ref.model.path": assets / "model",
        **({"critic.model.path": assets / "model"} if more is TINY else {}),
        "reward.custom_reward_function.path": ROOT / "examples" / "verl_ppo" / "reward.py",
        "trainer.default_local_dir": out / "checkpoints",
    }
    return [*OVERRIDES.split(), *more.split(), *(f"{name}={path}" for name, path in paths.items())]


if __name__ == "__main__":
    compare(
        Framework(
            make_tiny="examples/verl_ppo/make_tiny.py",
            sides={"dlrl": "benchmarks.verl_dlrl", "stock": "benchmarks.verl_stock"},
            words={"tiny": functools.partial(words, TINY), "75m": functools.partial(words, LARGE)},
            tag="actor/pg_loss",
            rounds=1,
        )
    )
