"""A config as a mapping or a YAML file: whole, with hydra's `defaults`, or only what differs from verl's own."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from verl_sources import SMALL, WHOLE, changed, job_of, needs_verl, read_mapping, read_words, without_verl

from dlrl_core import RLJobBuilder
from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource

LITTLE = {
    "actor_rollout_ref": {"rollout": {"name": "vllm"}, "actor": {"use_dynamic_bsz": True}},
    "critic": {"use_dynamic_bsz": True},
}
"""As the small overrides say it."""


def read_text(folder, text):
    from dlrl_verl.config import read

    (folder / "ppo.yaml").write_text(text)
    return read(ConfigSource(ConfigKind.YAML, folder / "ppo.yaml"))


@pytest.mark.parametrize("form", [dict, OmegaConf.create], ids=["dict", "omegaconf"])
def test_a_whole_config_stays_as_it_is(form):
    assert read_mapping(form(WHOLE)) == WHOLE


def test_a_whole_yaml_file_is_planned_with_overrides(tmp_path):
    OmegaConf.save(OmegaConf.create(WHOLE), tmp_path / "ppo.yaml")

    job = RLJobBuilder().framework("verl").config(tmp_path / "ppo.yaml").override("trainer.n_gpus_per_node=8").build()

    assert {role.total for role in job.spec.roles if role.role != "reward"} == {8}


@needs_verl
@pytest.mark.parametrize(
    "config",
    [
        LITTLE,
        {"actor_rollout_ref.rollout.name": "vllm", "actor_rollout_ref.actor.use_dynamic_bsz": True, **{"critic.use_dynamic_bsz": True}},
        OmegaConf.create(LITTLE),
        {"defaults": ["ppo_trainer", "_self_"], **LITTLE},
    ],
    ids=["nested", "dotted", "omegaconf", "defaults"],
)  # fmt: skip
def test_what_is_not_said_is_as_verl_has_it(config):
    assert read_mapping(config) == read_words(*SMALL)


@needs_verl
def test_the_engine_is_chosen_as_in_the_words():
    assert read_mapping({"model_engine": "megatron", **LITTLE}) == read_words("model_engine=megatron", *SMALL)


@needs_verl
def test_a_yaml_with_defaults_may_name_files_beside_it_and_files_of_verl(tmp_path):
    (tmp_path / "small.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(LITTLE)))

    config = read_text(tmp_path, "defaults: [ppo_trainer, small, _self_]\ntrainer: {nnodes: 3}\n")

    assert config == read_words(*SMALL, "trainer.nnodes=3")


@needs_verl
@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"trainer": {"nnods": 2}}, "unknown key 'trainer.nnods' (config); did you mean 'trainer.nnodes'?"),
        ({"zzz": 1}, "unknown key 'zzz' (config); to add a key that verl does not know, write '+zzz'"),
        ({"model_engine": "megatronn"}, "hydra refuses config: In 'ppo_trainer': Could not find 'model_engine/megatronn'"),
        ({"defaults": ["ppo_trainr", "_self_"]}, "hydra refuses config: In 'config': Could not load 'ppo_trainr'"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_with_the_nearest_right_one(extra, problem):
    with pytest.raises(SpecError) as caught:
        read_mapping({**LITTLE, **extra})

    assert problem in str(caught.value)


@needs_verl
def test_a_key_with_a_plus_is_added():
    config = read_mapping(
        {**LITTLE, "trainer": {"+mine": 1}, "reward": {"reward_model": {"rollout": {"engine_kwargs": {"any": 1}}}}}
    )

    assert config["trainer"]["mine"] == 1
    assert config["reward"]["reward_model"]["rollout"]["engine_kwargs"] == {"any": 1}


@without_verl
def test_a_part_of_a_config_says_what_it_needs_where_verl_is_missing():
    with pytest.raises(SpecError, match="verl and hydra-core are not installed here; run: pip install 'dlrl"):
        job_of(LITTLE)


def test_keys_that_nobody_reads_any_more_are_told(caplog):
    read_mapping(changed(custom_reward_function__path="score.py"))

    assert (
        "verl does not read 'custom_reward_function.path' any more; say 'reward.custom_reward_function.path'"
        in caplog.text
    )


def test_the_environment_of_the_job_is_kept_apart():
    config = changed(runtime_env__env_vars={"A": 1}, ray_kwargs__ray_init__runtime_env={"env_vars": {"B": "2"}})

    env = job_of(config).spec.global_env

    assert (env["A"], env["B"], env["TOKENIZERS_PARALLELISM"]) == ("1", "2", "true")
