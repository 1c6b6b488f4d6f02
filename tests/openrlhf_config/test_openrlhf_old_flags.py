"""Flags of older versions are carried over to the supported one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openrlhf_sources import problems_of, said

import dlrl_openrlhf.config.old_flags as old_flags_module
from dlrl_openrlhf.config import known_flags

LEVEL, MODE = "algo.advantage.is_correction_level", "algo.advantage.is_correction_mode"
THRESHOLD = "algo.advantage.is_correction_threshold"


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("--l2 0.1", {"actor.adam.weight_decay": 0.1, "critic.adam.weight_decay": 0.1}),
        ("--adam_betas 0.8 0.9", {"actor.adam.betas": [0.8, 0.9], "critic.adam.betas": [0.8, 0.9]}),
        ("--ref_reward_offload", {"ref.offload": True, "reward.offload": True}),
        ("--bf16", {"ds.param_dtype": "bf16"}),
        ("--flash_attn", {"ds.attn_implementation": "flash_attention_2"}),
        ("--use_kl_estimator_k3", {"algo.kl.estimator": "k3"}),
        ("--prompt_max_len 100 --generate_max_len 50", {"rollout.max_new_tokens": 50, "data.max_len": 150}),
        ("--generate_max_len 50", {"rollout.max_new_tokens": 50, "data.max_len": 1074}),
        ("--prompt_max_len 100", {"rollout.max_new_tokens": 1024, "data.max_len": 1124}),
        ("--generate_max_len 50 --max_len 99", {"rollout.max_new_tokens": 50, "data.max_len": 99}),
        ("--enable_vllm_is_correction", {LEVEL: "token", MODE: "clip"}),
        ("--vllm_enable_is_correction", {LEVEL: "token", MODE: "clip"}),
        ("--enable_vllm_is_correction --use_icepop", {LEVEL: "token", MODE: "mask"}),
        (
            "--enable_vllm_is_correction --vllm_is_truncated_threshold 2",
            {LEVEL: "token", MODE: "clip", THRESHOLD: [2.0]},
        ),
        ("--enable_vllm_is_correction --vllm_is_correction_type mis", {LEVEL: "seq", MODE: "mask"}),
        (
            "--algo.advantage.is_correction_enable --algo.advantage.is_correction_type seq-mask-tis",
            {LEVEL: "seq", MODE: "mask"},
        ),
        ("--head_prefix value --use_wandb key", {"ds.value_head_prefix": "value", "logger.wandb.key": "key"}),
    ],
)
def test_an_old_flag_means_what_it_meant(words, meaning):
    assert said(*words.split()) == meaning


@pytest.mark.parametrize("words", ["--perf", "--ptx_coef 0.1", "--actor_init_on_gpu", "--torch_compile"])
def test_a_flag_that_has_no_effect_any_more_is_ignored_and_told(words, caplog):
    assert said(*words.split()) == {}

    flag = words.split()[0]
    assert f"flag '{flag}' (word 17) is ignored: newer versions of OpenRLHF have no use for it" in caplog.text


def test_a_kind_of_correction_that_is_not_enabled_is_ignored_and_told(caplog):
    assert said("--vllm_is_correction_type", "icepop") == {}

    assert "is ignored: the correction is not enabled" in caplog.text


def test_a_flag_whose_meaning_is_gone_is_an_error():
    assert problems_of("--pretrain_data", "books") == (
        "flag '--pretrain_data' (word 17) mixes a pretraining loss into PPO, which OpenRLHF dropped in 0.7.1; "
        "leave it out",
    )


def test_every_new_name_of_a_renamed_flag_is_known_and_takes_the_same():
    renamed = json.loads(Path(old_flags_module.__file__).with_name("renamed_flags.json").read_text())
    table = known_flags()

    for old, new in renamed.items():
        kinds = {(table[name].type, table[name].nargs, table[name].choices) for name in new.split()}
        assert len(kinds) == 1, old
