"""Values that can't be together are found before anything starts, with the places of all of them."""

from __future__ import annotations

import pytest
from verl_sources import REWARD_MODEL, changed, needs_verl, problems_of, read_mapping

from dlrl_core.errors import SpecError

ROLLOUT = "actor_rollout_ref.rollout"
STATIC = (
    "actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1"
)
MEGATRON = "model_engine=megatron actor_rollout_ref.actor.megatron"
CASES = [
    ("trainer.nnodes=0", "'trainer.nnodes=0' (word 4) must be a whole number from 1 on", False),
    (
        f"trainer.n_gpus_per_node=3 {ROLLOUT}.tensor_model_parallel_size=2",
        "'trainer.nnodes=1' (the default) and 'trainer.n_gpus_per_node=3' (word 4) make 3 devices; with "
        f"'{ROLLOUT}.tensor_model_parallel_size=2' (word 5) they must be a multiple of 2",
        False,
    ),
    (
        f"{STATIC} {MEGATRON}.tensor_model_parallel_size=3",
        "'actor_rollout_ref.actor.megatron.tensor_model_parallel_size=3' (word 8)",
        True,
    ),
    (
        f"{STATIC} data.train_batch_size=257 actor_rollout_ref.actor.ppo_mini_batch_size=8",
        f"'data.train_batch_size=257' (word 7) and '{ROLLOUT}.n=1' (the default) make 257 samples",
        True,
    ),
    (
        f"{STATIC} data.train_batch_size=8",
        "'data.train_batch_size=8' (word 7) is less than 'actor_rollout_ref.actor.ppo_mini_batch_size=256' (the default)",
        True,
    ),
    (
        "actor_rollout_ref.actor.use_dynamic_bsz=False actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        f"key '{ROLLOUT}.log_prob_micro_batch_size_per_gpu' is missing",
        True,
    ),
    (
        f"{STATIC} actor_rollout_ref.actor.ppo_micro_batch_size=8",
        "say the same in two ways; leave the first out",
        True,
    ),
    (
        "critic.use_dynamic_bsz=False critic.ppo_micro_batch_size=8 critic.ppo_micro_batch_size_per_gpu=1",
        "'critic.ppo_micro_batch_size=8' (word 5) and 'critic.ppo_micro_batch_size_per_gpu=1' (word 6)",
        True,
    ),
    (
        f"{ROLLOUT}.val_kwargs.do_sample=True {ROLLOUT}.temperature=0",
        f"needs a temperature above 0, not '{ROLLOUT}.temperature=0' (word 5)",
        True,
    ),
    (
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False",
        "needs 'actor_rollout_ref.model.use_remove_padding=True'",
        True,
    ),
    (f"{ROLLOUT}.mode=sync", "was removed from verl; leave it out", True),
    (f"{ROLLOUT}.pipeline_model_parallel_size=2", "is not implemented in verl; say 1", True),
    (
        f"{ROLLOUT}.expert_parallel_size=8",
        f"must be the product of '{ROLLOUT}.tensor_model_parallel_size=2' (the default)",
        True,
    ),
    ("trainer.v1.trainer_mode=separate_async", "dlrl drives verl's synchronous PPO: say 'sync'", False),
    ("algorithm.filter_groups.enable=True", "is of verl's v1 trainer alone", False),
    ("actor_rollout_ref.hybrid_engine=False", "verl's PPO needs true", False),
    ("distillation.enabled=True", "needs a teacher, and dlrl has no role for one", False),
    ("actor_rollout_ref.actor.optim.optimizer=Adamax", "say 'Adam' or 'AdamW' or 'SGD'", False),
    ("actor_rollout_ref.actor.optim.optimizer_impl=torchao.optim", "say 'torch.optim'", False),
    ("critic.optim.optimizer=Adamax", "'critic.optim.optimizer=Adamax' (word 4): dlrl can't commit", False),
    (f"{MEGATRON}.use_megatron_fsdp=True", "can't commit the state of Megatron's own FSDP", False),
    (
        "model_engine=megatron +actor_rollout_ref.actor.megatron.override_ddp_config.overlap_param_gather=True",
        "overlap_param_gather=True' (word 5) leaves weights incomplete between two steps",
        False,
    ),
    ("model_engine=megatron actor_rollout_ref.actor.optim.optimizer=muon", "say 'adam' or 'sgd'", False),
    (f"{ROLLOUT}.checkpoint_engine.backend=nccl", "is for rollouts on devices of their own", False),
]
"""Overrides, what is said about them, and whether verl's own check would say something too."""


@needs_verl
@pytest.mark.parametrize(("words", "problem", "_"), CASES, ids=[words for words, _, _ in CASES])
def test_a_contradiction_is_named_with_its_keys_and_their_places(words, problem, _):
    assert any(problem in found for found in problems_of(*words.split())), problems_of(*words.split())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"trainer__n_gpus_per_node": 5}, "'trainer.n_gpus_per_node=5' (in the config) make 5 devices"),
        ({"actor_rollout_ref__rollout__name": "???"}, "key 'actor_rollout_ref.rollout.name' is missing"),
        (
            {"actor_rollout_ref__rollout__name": "sglang"},
            "'actor_rollout_ref.rollout.name=sglang' (in the config): dlrl can't run rollouts on this engine yet; say 'vllm'",
        ),
        (
            {"actor_rollout_ref__rollout__disaggregation": {"enabled": True}},
            "dlrl can't run prefill and decode apart from each other yet; leave it out",
        ),
        (
            {"actor_rollout_ref__rollout__checkpoint_engine": {"backend": "nixl"}},
            "here they share the actor's: say 'naive'",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__rollout__name": "sglang"},
            "'reward.reward_model.rollout.name=sglang' (in the config): dlrl can't run a reward model on this engine yet",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__model_path": None},
            "'reward.reward_model.enable=True' (in the config) needs 'reward.reward_model.model_path'",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__enable_resource_pool": True},
            "'reward.reward_model.nnodes=0' (in the config) must be a whole number from 1 on",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__enable_resource_pool": True},
            "needs 'reward.custom_reward_function.path': verl asks such a model by a function only",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__enable_resource_pool": True},
            "needs 'reward.reward_model.rollout.free_cache_engine=False', not",
        ),
        (
            {**REWARD_MODEL, "reward__reward_model__rollout__tensor_model_parallel_size": 3},
            "make 4 devices; with 'reward.reward_model.rollout.tensor_model_parallel_size=3' (in the config)",
        ),
        (
            {"actor_rollout_ref__actor__strategy": "torchtitan"},
            "'actor_rollout_ref.actor.strategy=torchtitan' (in the config): dlrl can't commit the state of this engine",
        ),
        ({"critic__ppo_mini_batch_size": 16}, "is less than 'critic.ppo_mini_batch_size=16' (in the config)"),
    ],
)
def test_a_whole_config_is_judged_without_verl(values, problem):
    with pytest.raises(SpecError) as caught:
        read_mapping(changed(**values))

    assert problem in str(caught.value)


def test_a_critic_that_is_not_there_contradicts_nothing():
    config = changed(algorithm__adv_estimator="grpo", critic__ppo_mini_batch_size=16)

    assert read_mapping(config) == config


def test_a_trainer_of_older_weights_is_no_matter_where_v1_is_off():
    config = changed(trainer__use_v1=False, trainer__v1={"trainer_mode": "separate_async"})

    assert read_mapping(config) == config
