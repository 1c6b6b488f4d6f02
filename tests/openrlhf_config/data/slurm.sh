#!/bin/bash
#SBATCH -N 2
IMAGE="registry/image:1"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=( $nodes )
head=${nodes_array[0]}
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
    srun -w "${nodes_array[$i]}" bash -c "ray start --address $head:6379 --block" &>> "$SLURM_JOB_ID.log" &
    sleep 1s;
done

srun --overlap -w "$head" --container-image="$IMAGE" bash -c \
"pip install ray \
&& ray job submit --runtime-env-json='{\"working_dir\": \"/code\"}' \
    -- python3 -m openrlhf.cli.train_ppo_ray \
    --actor.model_name_or_path org/small-model \
    --reward.model_name_or_path org/judge \
    --data.prompt_dataset org/prompts \
    --actor.num_gpus_per_node 4 \
    --critic.num_gpus_per_node 4 \
    --ref.num_gpus_per_node 4 \
    --reward.num_gpus_per_node 4 \
    --vllm.num_engines 4" &>> "$SLURM_JOB_ID.log"
