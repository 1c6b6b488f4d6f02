"""Words as they stand on a command line: a wrong one is named with its place, all of them at once."""

from __future__ import annotations

import pytest
from verl_sources import MODULE, SMALL, needs_verl, problems_of, read_words, without_verl

from dlrl_core.errors import FrameworkUnavailableError, SpecError


def message_of(*words: str) -> str:
    with pytest.raises(SpecError) as caught:
        read_words(*words)
    return str(caught.value)


@needs_verl
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("trainer.nnods=2", "unknown key 'trainer.nnods' (word 4); did you mean 'trainer.nnodes'?"),
        ("actor_rollout_ref.actor.optim.rl=1", "did you mean 'actor_rollout_ref.actor.optim.lr'?"),
        ("zzz=1", "unknown key 'zzz' (word 4); to add a key that verl does not know, write '+zzz=1'"),
        ("~trainer.nnods", "unknown key 'trainer.nnods' (word 4); did you mean 'trainer.nnodes'?"),
        ("+trainer.nnodes=2", "key 'trainer.nnodes' (word 4) is there already; to change it, leave the '+' out"),
        ("trainer.nnodes=1,2", "'trainer.nnodes' (word 4) has several values to choose from; dlrl runs one job"),
        ("trainer.logger=[a", "'trainer.logger=[a' (word 4) is not an override of hydra"),
        ("model_engine=megatronn", "hydra refuses 'model_engine' (word 4): In 'ppo_trainer': Could not find 'model_engine/megatronn'"),
        ("--config-name=ppo_trainr", "Cannot find primary config 'ppo_trainr'"),
        ("--config-dir=/no/such", "config folder '/no/such' is not there"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_named_with_its_place_and_the_nearest_right_one(words, problem):
    [found] = problems_of(words)

    assert problem in found


@needs_verl
def test_all_wrong_keys_are_found_at_once():
    assert len(problems_of("trainer.nnods=2", "zzz=1", "+trainer.nnodes=2", "data.train_fils=x")) == 4


@needs_verl
def test_a_key_that_was_added_can_be_changed():
    config = read_words(*SMALL, "+trainer.new.key=1", "trainer.new.key=2")

    assert config["trainer"]["new"] == {"key": 2}


@needs_verl
def test_a_folder_of_the_users_own_is_looked_in(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [ppo_trainer, _self_]\ntrainer: {nnodes: 3}\n")

    config = read_words("--config-dir", str(tmp_path), "-cn=mine", *SMALL)

    assert config["trainer"]["nnodes"] == 3


@needs_verl
def test_hydra_is_left_as_it_was():
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from dlrl_verl.config.packaged import config_folder

    with initialize_config_dir(str(config_folder()), version_base="1.1"):
        read_words(*SMALL)
        assert GlobalHydra.instance().is_initialized()
        assert compose("ppo_trainer").trainer.nnodes == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--multirun a=1,2", "flag '--multirun' (word 1) asks hydra for several jobs"),
        (f"python -m {MODULE} --cfg job", "flag '--cfg' (word 4) does not train, as far as dlrl knows hydra's flags"),
        ("a=1 --config-name", "flag '--config-name' (word 2) has no value"),
        ("python -m verl.trainer.sft_trainer a=1", "the command runs 'verl.trainer.sft_trainer' (word 3); dlrl runs"),
        ("make train", "'make' (word 1) is neither an override nor a launch script (.sh), and does not run"),
    ],
)
def test_words_that_do_not_train_are_refused(words, problem):
    assert problem in message_of(*words.split())


@without_verl
def test_overrides_say_what_they_need_where_verl_is_missing():
    with pytest.raises(FrameworkUnavailableError) as caught:
        read_words(*SMALL)

    assert str(caught.value) == (
        "overrides are laid over verl's own config files by hydra, and verl and hydra-core are not installed here; "
        "run: pip install 'dlrl[verl]', or give the composed YAML that 'python -m verl.trainer.main_ppo ... --cfg job' "
        "prints"
    )
