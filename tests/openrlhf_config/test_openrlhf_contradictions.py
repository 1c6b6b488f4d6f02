"""Flags that can't be together are found before anything starts, with the places of all of them."""

from __future__ import annotations

import pytest
from openrlhf_sources import problems_of, read_words

REMOTE = "--reward.remote_url f.py"
ONE_DEVICE = "--actor.num_gpus_per_node 1 --critic.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --vllm.num_engines 1"
CASES = [
    (
        "--train.colocate_actor_ref",
        "'actor' and 'ref' share devices by '--train.colocate_actor_ref' (word 17), and need equal counts: "
        "'--actor.num_nodes 1' (the default), '--actor.num_gpus_per_node 2' (word 7), '--ref.num_nodes 1' (the default), "
        "'--ref.num_gpus_per_node 1' (word 11)",
    ),
    ("--train.colocate_critic_reward", "'critic' and 'reward' share devices by '--train.colocate_critic_reward'"),
    (
        f"--train.colocate_all {ONE_DEVICE} --vllm.tensor_parallel_size 2",
        "'--vllm.num_engines 1' (word 24) x '--vllm.tensor_parallel_size 2' (word 26) is 2 devices and 'actor' has 1; "
        "'--train.colocate_all' (word 17) needs as many",
    ),
    ("--vllm.num_engines 0", "'--vllm.num_engines 0' (word 17) leaves no rollout engine, and dlrl needs one; say 1"),
    ("--algo.advantage.estimator rloo", "'--rollout.n_samples_per_prompt 1' (the default) must be greater than 1"),
    ("--actor.num_nodes 0", "'--actor.num_nodes 0' (word 17) must be at least 1"),
    (f"--ds.ring_attn_size 2 {REMOTE}", "'ref' has 1 processes; with '--ds.ring_attn_size 2' (word 17) and"),
    ("--rollout.batch_size 1", "is too little for 2 processes of 'actor'"),
    ("--train.partial_rollout_enable", "'--train.partial_rollout_enable' (word 17) needs '--train.async_enable'"),
    ("--rollout.vllm_generate_batch_size 2048", "which needs '--train.async_enable'"),
    ("--vllm.sync_with_ray", "'--vllm.sync_with_ray' (word 17) sends weights by a way that dlrl can't mend"),
    ("--eval.dataset d", "'--eval.dataset d' (word 17) needs '--reward.remote_url' or '--train.agent_func_path'"),
    (
        f"{REMOTE} {ONE_DEVICE} --train.colocate_all --train.async_enable --vllm.enable_sleep",
        "'--vllm.enable_sleep' (word 29) does not go with '--train.async_enable' (word 28)",
    ),
    (f"{REMOTE} --algo.dynamic_filtering_enable", "needs more than 1 answer to a prompt"),
    (
        "--algo.dynamic_filtering_enable --rollout.n_samples_per_prompt 2",
        "'--algo.dynamic_filtering_enable' (word 17) needs '--reward.remote_url' or '--train.agent_func_path'",
    ),
    (
        f"{REMOTE} --algo.dynamic_filtering_enable --rollout.n_samples_per_prompt 2 --algo.dynamic_filtering_range 1 0",
        "'--algo.dynamic_filtering_range 1.0 0.0' (word 22) is empty",
    ),
    ("--algo.advantage.is_correction_threshold 1 2 3", "takes a high bound, or a low and a high one"),
    (
        "--algo.advantage.is_correction_level seq --algo.advantage.is_correction_mode clip",
        "'--algo.advantage.is_correction_mode clip' (word 19) goes with level 'token' and gating 'ratio' only",
    ),
    ("--data.max_images_per_prompt 1", "does not go with a critic; say another '--algo.advantage.estimator'"),
    (
        "--data.max_images_per_prompt 1 --algo.advantage.estimator reinforce --train.dynamic_batch_enable",
        "'--data.max_images_per_prompt 1' (word 17) does not go with packed samples",
    ),
]


@pytest.mark.parametrize(("words", "problem"), CASES, ids=[words for words, _ in CASES])
def test_a_contradiction_is_named_with_its_flags_and_their_places(words, problem):
    [found] = problems_of(*words.split())

    assert problem in found


def test_all_contradictions_are_found_at_once():
    words = ("--algo.advantage.estimator", "rloo", "--eval.dataset", "d", "--train.colocate_actor_ref")

    assert len(problems_of(*words)) == 3


@pytest.mark.parametrize(
    "words",
    [
        "--algo.kl.init_coef 0 --train.colocate_actor_ref",
        f"{REMOTE} --train.colocate_critic_reward",
        "--algo.advantage.estimator reinforce --train.colocate_critic_reward",
        "--vllm.enable_sleep --train.async_enable",
        "--algo.advantage.estimator flash_reinforce",
    ],
)
def test_a_flag_about_a_role_that_is_not_there_contradicts_nothing(words):
    base = "--actor.model_name_or_path m --reward.model_name_or_path r --data.prompt_dataset d --vllm.num_engines 2 --actor.num_gpus_per_node 2"

    assert read_words(*base.split(), *words.split())
