#!/bin/bash
# Groups of flags in arrays, folders found from the script's own place, submitted as a Ray job.
set -x

HERE="$(dirname "$0")"
ROOT=$(cd "$HERE/../.." && pwd)

MODEL="org/small-model"
RUNS="${ROOT}/runs/small"

MODELS=(
   --actor.model_name_or_path ${MODEL}
   # --reward.model_name_or_path org/judge
   --reward.remote_url "${ROOT}/rewards/exact_match.py"

   --ckpt.output_dir ${RUNS}   # the final model
   --ckpt.path "${RUNS}/ckpt"
)

DATA=(
   --data.prompt_dataset org/prompts
   --data.input_template $'Q: {}\nA:'
   --rollout.n_samples_per_prompt 8
)

PLACES=(--actor.num_gpus_per_node 4 --ref.num_gpus_per_node 4 --vllm.num_engines 4 --train.colocate_all)
PLACES+=(--ds.zero_stage 3)

ray start --head --num-gpus 4
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/code", "env_vars": {"NCCL_DEBUG": "WARN", "WANDB_API_KEY": "hunter2"}}' \
   -- python3 -u -m openrlhf.cli.train_ppo_ray \
   ${MODELS[@]} \
   "${DATA[@]}" \
   ${PLACES[@]} \
   --algo.advantage.estimator group_norm 2>&1 | tee "${RUNS}/log"
