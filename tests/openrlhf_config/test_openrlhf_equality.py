"""What reaches OpenRLHF is what its own parser and its own checks make of the same words. Asserted against itself."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from openrlhf_sources import SMALL, each_script, needs_openrlhf, problems_of, read_words, scripts

from dlrl_core.errors import SpecError
from dlrl_openrlhf.config import argv_of, own_namespace
from dlrl_openrlhf.config.flag_table import SHIPPED, rows_of
from dlrl_openrlhf.config.own_parser import own_parser

pytestmark = needs_openrlhf

FORMS = [
    "--actor.num_nodes=2",
    "--actor.num_n 2",
    "--rollout.top 0.5",
    "--train.seed 1 --train.seed 2",
    "--reward.clip_range -5 5.5",
    "--reward.clip_range -.5 1e3",
    "--eval.steps -1",
    "--eval.steps=-1",
    "--ckpt.max_mem inf",
    "--actor.adam.lr=1e-6",
    "--ds.lora.target_modules q_proj v_proj",
    "--ds.lora.target_modules",
    "--algo.advantage.is_correction_threshold 5e-3",
    "--algo.advantage.is_correction_threshold 0.5 2",
    "--critic.muon.no_nesterov",
    "--critic.muon.no_nesterov --critic.muon.nesterov",
    "--actor.muon.nesterov",
    "--reward.stop_properly_penalty_coef -0.00001",
    "--data.input_template=-{}",
    "--ckpt.best_metric_key=",
    "--local_rank 3 --use_ms",
]


def said_at(words: list[str]) -> SimpleNamespace:
    """The namespace without the one default that is made up from the clock."""
    namespace = own_namespace(words)
    if not any(word.startswith("--logger.wandb.run_name") for word in words):
        del namespace.logger.wandb.run_name
    return namespace


def test_the_shipped_flags_are_those_of_the_installed_parser():
    assert json.loads(SHIPPED.read_text()) == rows_of(own_parser())


@each_script("0.11.2")
def test_a_script_gives_the_namespace_of_its_own_words(words):
    assert said_at(argv_of(read_words(*words))) == said_at(words)


@pytest.mark.parametrize("name", scripts("0.10.1"))
def test_flat_flags_give_the_namespace_of_the_dotted_ones_that_openrlhf_wrote_for_them(name):
    before, after = (argv_of(read_words(*scripts(version)[name])) for version in ("0.10.1", "0.10.4"))

    assert said_at(before) == said_at(after)


@each_script("0.8.11")
def test_openrlhf_takes_what_the_flags_of_an_old_script_became(words):
    namespace = said_at(argv_of(read_words(*words)))

    assert namespace.data.max_len == int(words[words.index("--prompt_max_len") + 1]) + namespace.rollout.max_new_tokens


@pytest.mark.parametrize("form", [*map(str.split, FORMS), ["--data.input_template", "- {} \n it's:"]], ids=" ".join)
def test_each_form_that_argparse_takes_means_the_same(form):
    words = [*SMALL, *form]

    assert said_at(argv_of(read_words(*words))) == said_at(words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--no_such_flag"], "unrecognized arguments: --no_such_flag"),
        (["--actor.num_nodes", "two"], "argument --actor.num_nodes: invalid int value: 'two'"),
        ([*SMALL, "--ds.packing_samples", "--vllm.num_engines", "0"], "Only support `--packing_samples` with vLLM."),
        (["--rollout.batch_size", "1"], "'NoneType' object has no attribute 'split'"),
    ],
)
def test_what_openrlhf_refuses_is_an_error_with_its_own_words(words, reason):
    with pytest.raises(SpecError) as caught:
        own_namespace(words)

    assert str(caught.value).startswith("openrlhf refuses the config: ")
    assert str(caught.value).endswith(reason)


def test_a_config_is_shown_to_openrlhf_before_anything_starts(monkeypatch):
    """A check that only OpenRLHF knows, as a later version may have it."""
    monkeypatch.setattr("dlrl_openrlhf.config.reader.contradictions", lambda table, said: [])

    assert problems_of("--algo.advantage.estimator", "rloo") == (
        "openrlhf refuses the config: rloo requires n_samples_per_prompt > 1",
    )


def test_openrlhf_is_asked_without_importing_it():
    code = "\n".join(
        [
            "import sys",
            "from dlrl_openrlhf.config import own_namespace",
            f"own_namespace({SMALL!r})",
            "print(sorted({'torch', 'ray', 'openrlhf', 'deepspeed', 'vllm'} & set(sys.modules)))",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout == "[]\n"
