"""A config is what verl's own command composes for the same words, and what it refuses is refused. Asserted against it."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from test_verl_contradictions import CASES
from verl_sources import PLANNED, REFUSED, SCRIPTS, SMALL, job_of_script, needs_verl, read_words

from dlrl_core.errors import SpecError
from dlrl_verl.config.environment import OWN_ENV

pytestmark = [needs_verl, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("composed_by_verl.py")
OTHERS = {
    "nothing more": [],
    "old name of megatron": ["--config-name=ppo_megatron_trainer"],
    "short flags": ["-cn", "ppo_megatron_trainer", "-cp", "config"],
    "added": ["+trainer.new.key=1", "++trainer.nnodes=2", "+data.more={a: [1, 2], b: null}"],
    "taken away": ["~trainer.logger", "~critic.optim.lr"],
    "texts": ["trainer.logger=['console','wandb']", "trainer.project_name='a b'", "data.train_files=[a.parquet]"],
    "numbers": ["actor_rollout_ref.actor.optim.lr=1e-6", "trainer.test_freq=-1", "trainer.default_hdfs_dir=null"],
    "interpolation": ["trainer.experiment_name=${trainer.project_name}-x"],
    "group": ["model_engine=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"],
    "hydra's own": ["hydra.run.dir=/nowhere"],
}
REFUSED_WORDS = {
    "unknown key": ["trainer.nnods=2"],
    "unknown group": ["model_engine=megatronn"],
    "there already": ["+trainer.nnodes=2"],
    "nothing to take away": ["~trainer.nnods"],
    "no override": ["trainer.logger=[a"],
}


@pytest.fixture(scope="module")
def verl_says():
    """All answers of verl, by the name of the question."""
    questions = {
        **SCRIPTS,
        **{name: [*SMALL, *words] for name, words in {**OTHERS, **REFUSED_WORDS}.items()},
        **{words: [*SMALL, *words.split()] for words, _, is_checked in CASES if is_checked},
    }
    command = [sys.executable, str(PROGRAM)]
    asked = json.dumps(list(questions.values()))
    ran = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=500)
    return dict(zip(questions, json.loads(ran.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", PLANNED)
def test_the_overrides_of_a_script_compose_as_verl_composes_them(name, verl_says):
    assert job_of_script(name).spec.config.open() == OmegaConf.create(verl_says[name]["yaml"])


@pytest.mark.parametrize("name", OTHERS)
def test_each_form_of_a_word_means_the_same(name, verl_says):
    assert OmegaConf.create(read_words(*SMALL, *OTHERS[name])) == OmegaConf.create(verl_says[name]["yaml"])


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_WORDS])
def test_what_verl_refuses_is_refused(name, verl_says):
    with pytest.raises(SpecError):
        read_words(*(SCRIPTS.get(name) or [*SMALL, *REFUSED_WORDS[name]]))

    assert verl_says[name]["refusal"]


@pytest.mark.parametrize("words", [words for words, _, is_checked in CASES if is_checked])
def test_verl_objects_to_each_contradiction_too(words, verl_says):
    assert verl_says[words]["objection"]


@pytest.mark.parametrize("name", PLANNED)
def test_verl_does_not_object_to_what_is_planned(name, verl_says):
    assert not verl_says[name]["objection"]


def test_the_environment_is_that_of_verl():
    file = importlib.metadata.distribution("verl").locate_file("verl/trainer/constants_ppo.py")
    [env] = [
        node.value.values[0]
        for node in ast.parse(Path(file).read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PPO_RAY_RUNTIME_ENV"
    ]

    assert {key.value: value.value for key, value in zip(env.keys, env.values, strict=True) if key} == OWN_ENV
