# Flat flags in a heredoc, with a count from the command line and a value from the environment.
export NCCL_DEBUG=INFO
GPUS=${1:-2}
KEY=${WANDB_KEY:-none}

read -r -d '' flags <<EOF
openrlhf.cli.train_ppo_ray \
   --pretrain org/small-model \
   --reward_pretrain org/judge \
   --prompt_data org/prompts \
   --actor_num_gpus_per_node $GPUS \
   --ref_num_gpus_per_node $GPUS \
   --critic_num_gpus_per_node $((GPUS / 2)) \
   --reward_num_gpus_per_node $((GPUS / 2)) \
   --vllm_num_engines 2 \
   --colocate_actor_ref \
   --colocate_critic_reward \
   --prompt_max_len 512 \
   --generate_max_len 256 \
   --bf16 \
   --use_wandb $KEY
EOF

if [[ ${1} != "dry" ]]; then
    VLLM_USE_V1=1 python3 -m $flags
fi
