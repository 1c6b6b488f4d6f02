#!/bin/bash
# PPO of a tiny model with all five roles, in OpenRLHF's own flags. TINY is the folder that make_tiny.py filled:
#
#   python examples/openrlhf_ppo/make_tiny.py /tmp/tiny
#   TINY=/tmp/tiny dlrl run --framework openrlhf -- bash examples/openrlhf_ppo/train_tiny.sh
set -eu

TINY="${TINY:?the folder that make_tiny.py filled}"
OUT="${OUT:-$TINY/out}"

ray job submit --address="http://127.0.0.1:8265" \
  --runtime-env-json='{"env_vars": {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}}' \
  -- python3 -m openrlhf.cli.train_ppo_ray \
  --actor.num_nodes 1 --actor.num_gpus_per_node 1 \
  --critic.num_nodes 1 --critic.num_gpus_per_node 1 \
  --ref.num_nodes 1 --ref.num_gpus_per_node 1 \
  --reward.num_nodes 1 --reward.num_gpus_per_node 1 \
  --vllm.num_engines 1 --vllm.tensor_parallel_size 1 --vllm.enforce_eager --vllm.sync_backend gloo \
  --actor.model_name_or_path "$TINY/policy" \
  --reward.model_name_or_path "$TINY/reward" \
  --data.prompt_dataset "$TINY/prompts.jsonl" --data.input_key input --data.label_key label \
  --data.max_samples 64 --data.max_len 64 \
  --rollout.batch_size 8 --rollout.micro_batch_size 4 --rollout.n_samples_per_prompt 1 --rollout.max_new_tokens 16 \
  --train.batch_size 8 --train.micro_batch_size 2 --train.max_epochs 1 \
  --actor.adam.lr 1e-3 --critic.adam.lr 1e-3 --algo.kl.init_coef 0.01 \
  --ds.zero_stage 2 --ds.param_dtype bf16 --ds.attn_implementation eager \
  --ckpt.output_dir "$OUT/final" --ckpt.path "$OUT/ckpt" \
  --logger.logging_steps 1
