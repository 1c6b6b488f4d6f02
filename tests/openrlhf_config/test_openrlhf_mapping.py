"""A config as a mapping or a YAML file says the same as the words."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from openrlhf_sources import SMALL, needs_openrlhf, read_mapping, read_words

from dlrl_core import RLJobBuilder
from dlrl_core.context.redaction import looks_secret
from dlrl_core.errors import SpecError
from dlrl_openrlhf.config import RUNTIME_ENV, argv_of, flat, own_namespace

NESTED = {
    "actor": {"model_name_or_path": "tiny", "num_gpus_per_node": 2},
    "reward": {"model_name_or_path": "judge", "num_gpus_per_node": 1},
    "data": {"prompt_dataset": "prompts"},
    "critic": {"num_gpus_per_node": 2},
    "ref": {"num_gpus_per_node": 1},
    "vllm": {"num_engines": 2},
}
DOTTED = {f"{section}.{name}": value for section, values in NESTED.items() for name, value in values.items()}
FLAT = {
    "pretrain": "tiny",
    "reward_pretrain": "judge",
    "prompt_data": "prompts",
    "actor_num_gpus_per_node": 2,
    "critic_num_gpus_per_node": 2,
    "ref_num_gpus_per_node": 1,
    "reward_num_gpus_per_node": 1,
    "--vllm_num_engines": 2,
}


@pytest.mark.parametrize(
    "config",
    [NESTED, DOTTED, FLAT, OmegaConf.create(NESTED), {**DOTTED, "actor.num_gpus_per_node": "${vllm.num_engines}", "vllm": {"num_engines": 2}}],
    ids=["nested", "dotted", "flat", "omegaconf", "interpolated"],
)  # fmt: skip
def test_each_form_of_a_mapping_says_the_same(config):
    assert flat(read_mapping(config)) == flat(read_words(*SMALL))


def test_a_yaml_file_says_the_same(tmp_path):
    path = tmp_path / "ppo.yaml"
    OmegaConf.save(OmegaConf.create(NESTED), path)

    job = RLJobBuilder().framework("openrlhf").config(path).override("actor.num_gpus_per_node=4").build()

    assert job.spec.roles[0].total == 4


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("actor.adam.lr", "1e-6", 1e-6),
        ("actor.adam.lr", 1, 1.0),
        ("actor.adam.betas", [0.9, "0.95"], [0.9, 0.95]),
        ("ds.lora.target_modules", "all-linear", ["all-linear"]),
        ("data.prompt_probs", 0.5, "0.5"),
        ("train.colocate_actor_ref", False, False),
        ("actor.muon.nesterov", False, False),
    ],
)
def test_values_get_the_type_of_their_flag(name, value, kept):
    assert flat(read_mapping({**DOTTED, name: value}))[name] == kept


def test_what_a_file_leaves_open_is_as_if_it_were_not_there():
    assert "actor.dual_clip" not in flat(read_mapping({**DOTTED, "actor.dual_clip": None}))


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"actor": {"num_nodez": 1}}, "unknown flag '--actor.num_nodez' (config, key 'actor.num_nodez'); did you mean"),
        ({"train.seed": None}, "flag '--train.seed' (config, key 'train.seed') is null; leave it out for OpenRLHF's"),
        ({"train.seed": True}, "is a bool; it must be one int"),
        ({"train.seed": 1.5}, "is '1.5'; it must be a whole number"),
        ({"train.colocate_all": "yes"}, "is 'yes'; it must be true or false"),
        ({"reward.clip_range": [1]}, "has 1 values; it takes 2 values"),
        ({"ds.param_dtype": "fp8"}, "is 'fp8'; it must be one of bf16, fp16"),
        ({"actor.adam.lr": "${no.such}"}, "config can't be resolved: Interpolation key 'no.such' not found"),
        ({"runtime_env": 3}, "'runtime_env' of config must be a mapping with 'env_vars' in it"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(extra, problem):
    with pytest.raises(SpecError) as caught:
        read_mapping({**DOTTED, **extra})

    assert problem in str(caught.value)


def test_an_empty_config_is_told_all_that_is_missing():
    with pytest.raises(SpecError) as caught:
        read_mapping({})

    assert len(caught.value.problems) == 4


def test_the_environment_of_the_job_is_kept_apart_from_the_flags():
    config = read_mapping({**NESTED, RUNTIME_ENV: {"env_vars": {"A": 1}}})

    assert RLJobBuilder().framework("openrlhf").config(config).build().spec.global_env["A"] == "1"
    assert argv_of(config) == argv_of(read_mapping(NESTED))


def test_secrets_stay_under_names_that_tell_so():
    config = read_mapping({**NESTED, "use_wandb": "hunter2", RUNTIME_ENV: {"env_vars": {"HF_TOKEN": "hunter2"}}})

    assert looks_secret("logger.wandb.key") and config["logger"]["wandb"]["key"] == "hunter2"
    assert looks_secret("runtime_env.env_vars.HF_TOKEN") and RUNTIME_ENV in config


@needs_openrlhf
def test_a_switch_that_is_off_stays_off():
    off = {"actor.muon.nesterov": False, "train.colocate_all": False}

    namespace = own_namespace(argv_of(OmegaConf.create(read_mapping({**DOTTED, **off}))))

    assert (namespace.actor.muon.nesterov, namespace.train.colocate_all) == (False, False)
