#!/bin/bash
# GRPO with verl on FSDP: no critic, four answers to each prompt. A launch script as for verl itself.
#   ASSETS: what make_tiny.py has written; OUT: where checkpoints go
set -x

ASSETS=${ASSETS:-/tmp/tiny}
OUT=${OUT:-/tmp/verl_fsdp}
HERE=${HERE:-examples/verl_ppo}

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$ASSETS/train.parquet" \
    data.val_files="$ASSETS/test.parquet" \
    data.train_batch_size=8 \
    data.max_prompt_length=32 \
    data.max_response_length=16 \
    actor_rollout_ref.model.path="$ASSETS/model" \
    actor_rollout_ref.model.use_remove_padding=False \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.actor.optim.lr=1e-3 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.max_model_len=64 \
    actor_rollout_ref.rollout.max_num_seqs=16 \
    actor_rollout_ref.rollout.max_num_batched_tokens=256 \
    actor_rollout_ref.rollout.load_format=auto \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16 \
    actor_rollout_ref.rollout.agent.num_workers=1 \
    actor_rollout_ref.ref.strategy=fsdp2 \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4 \
    reward.num_workers=1 \
    reward.custom_reward_function.path="$HERE/reward.py" \
    trainer.logger='["console"]' \
    trainer.nnodes=1 \
    trainer.n_gpus_per_node=2 \
    trainer.val_before_train=False \
    trainer.test_freq=-1 \
    trainer.save_freq=4 \
    trainer.total_training_steps=8 \
    trainer.default_local_dir="$OUT" \
    "$@"
