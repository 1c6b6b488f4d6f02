"""What dlrl costs verl: the time of a step, and until the first one is done, over verl alone.

    .venvs/verl/bin/python -m benchmarks.verl_overhead

Both sides run the same overrides with the tiny model of examples/verl_ppo: PPO on Megatron with tensor parallel 2, on a
local Ray with logical GPUs, in turns of seconds. Times are those of verl's own tensorboard log, without those of the
other's turns. Under dlrl each step is also committed.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.overhead import ROOT, Framework, compare

OVERRIDES = """
--config-name=ppo_megatron_trainer trainer.use_v1=False
algorithm.adv_estimator=gae algorithm.use_kl_in_reward=True
data.train_batch_size=32 data.max_prompt_length=32 data.max_response_length=32 data.dataloader_num_workers=0
actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2
actor_rollout_ref.ref.megatron.tensor_model_parallel_size=2 critic.megatron.tensor_model_parallel_size=2
actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
critic.ppo_mini_batch_size=32 critic.ppo_micro_batch_size_per_gpu=8
actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1
actor_rollout_ref.rollout.max_model_len=96 actor_rollout_ref.rollout.max_num_seqs=32
actor_rollout_ref.rollout.max_num_batched_tokens=512 actor_rollout_ref.rollout.load_format=auto
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
actor_rollout_ref.rollout.agent.num_workers=1 reward.num_workers=1
trainer.logger=[tensorboard] trainer.nnodes=1 trainer.n_gpus_per_node=2
trainer.val_before_train=False trainer.test_freq=-1 trainer.save_freq=-1
trainer.total_epochs=12 trainer.total_training_steps=24
"""


def words(assets: Path, out: Path) -> list[str]:
    paths = {
        "data.train_files": assets / "train.parquet",
        "data.val_files": assets / "test.parquet",
        "actor_rollout_ref.model.path": assets / "model",
        "critic.model.path": assets / "model",
        "reward.custom_reward_function.path": ROOT / "examples" / "verl_ppo" / "reward.py",
        "trainer.default_local_dir": out / "checkpoints",
    }
    return [*OVERRIDES.split(), *(f"{name}={path}" for name, path in paths.items())]


if __name__ == "__main__":
    compare(
        Framework(
            make_tiny="examples/verl_ppo/make_tiny.py",
            sides={"dlrl": "benchmarks.verl_dlrl", "stock": "benchmarks.verl_stock"},
            words=words,
            tag="actor/pg_loss",
        )
    )
