"""Flags on a command line: every form that argparse takes, and errors that say where and what instead."""

from __future__ import annotations

import argparse
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openrlhf_sources import SMALL, problems_of, read_words, said

from dlrl_openrlhf.config import argv_of, flat, known_flags
from dlrl_openrlhf.config.flag_table import SHIPPED
from dlrl_openrlhf.config.flag_words import Vocabulary, flags_of
from dlrl_openrlhf.config.nesting import nested
from dlrl_openrlhf.config.old_flags import translated
from dlrl_openrlhf.config.said import Word

TABLE = known_flags()


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("--actor.num_nodes=3", {"actor.num_nodes": 3}),
        ("--rollout.top 0.5", {"rollout.top_p": 0.5}),
        ("--train.seed 1 --train.seed 2", {"train.seed": 2}),
        ("--reward.clip_range -5 5", {"reward.clip_range": [-5.0, 5.0]}),
        ("--eval.steps -1", {"eval.steps": -1}),
        ("--ds.lora.target_modules", {"ds.lora.target_modules": []}),
        ("--ds.lora.target_modules a b", {"ds.lora.target_modules": ["a", "b"]}),
        ("--algo.advantage.is_correction_threshold 5e-3", {"algo.advantage.is_correction_threshold": [0.005]}),
        ("--actor.muon.no_nesterov", {"actor.muon.nesterov": False}),
        ("--use_ms --local_rank 1", {"use_ms": True, "local_rank": 1}),
        ("--actor_num_nodes 3", {"actor.num_nodes": 3}),
        ("--actor_num_n 3", {"actor.num_nodes": 3}),
        ("--data.input_template=--{}", {"data.input_template": "--{}"}),
    ],
)
def test_each_form_of_a_flag_is_read(words, meaning):
    assert said(*words.split()) == meaning


def test_the_config_holds_what_was_said_and_nothing_else():
    assert len(flat(read_words(*SMALL))) == len(SMALL) / 2


def test_the_config_survives_json():
    config = read_words(*SMALL, "--ckpt.max_mem", "1e9")

    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--actor.num_node 2", None),
        ("--actor.num_nodez 2", "unknown flag '--actor.num_nodez' (word 17); did you mean '--actor.num_nodes'?"),
        ("--actor_num_nodez=2", "unknown flag '--actor_num_nodez' (word 17); did you mean '--actor_num_nodes'?"),
        ("--zzz", "unknown flag '--zzz' (word 17); no version of OpenRLHF that dlrl knows has it"),
        ("--ckpt.save 1", "flag '--ckpt.save' (word 17) is short for more than one: --ckpt.save_steps, --ckpt.save_hf"),
        ("--actor.num_nodes two", "flag '--actor.num_nodes' (word 17) is 'two'; it must be a whole number"),
        ("--rollout.top_p much", "flag '--rollout.top_p' (word 17) is 'much'; it must be a number"),
        ("--ds.param_dtype fp8", "flag '--ds.param_dtype' (word 17) is 'fp8'; it must be one of bf16, fp16"),
        ("--actor.num_nodes", "flag '--actor.num_nodes' (word 17) takes one value, and has none"),
        ("--actor.num_nodes 1 2", "flag '--actor.num_nodes' (word 17) takes one value, and has 2"),
        ("--reward.clip_range 1", "flag '--reward.clip_range' (word 17) takes 2 values, and has 1"),
        ("--train.colocate_all yes", "flag '--train.colocate_all' (word 17) takes no value, and has 1"),
        ("--train.colocate_all=yes", "flag '--train.colocate_all' (word 17) takes no value, and has 1"),
        ("--algo.advantage.is_correction_threshold", "takes one value or more, and has none"),
        ("-x 1", "'-x' (word 17) is not a flag, and no flag takes it"),
        ("--", "'--' (word 17) is not a flag, and no flag takes it"),
        ("--train.seed=1 2", "'2' (after '--train.seed', word 17) is not a flag, and no flag takes it"),
    ],
)
def test_a_wrong_word_is_named_with_its_place_and_the_nearest_right_one(words, problem):
    if problem is None:  # an abbreviation, as argparse allows it
        assert said(*words.split()) == {"actor.num_nodes": 2}
    else:
        [found] = problems_of(*words.split())
        assert problem in found


def test_all_problems_are_found_at_once():
    assert len(problems_of("--zzz", "--actor.num_nodes", "two", "--ds.param_dtype", "fp8")) == 3


# ---- against argparse itself


def argparse_parser() -> argparse.ArgumentParser:
    """A parser with the shipped flags."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for row in json.loads(SHIPPED.read_text()):
        options = {"dest": row.get("dest", row["name"]), "default": argparse.SUPPRESS}
        if row["type"] == "bool":
            parser.add_argument(f"--{row['name']}", action="store_true" if row["const"] else "store_false", **options)
        else:
            kind = {"int": int, "float": float, "str": str}[row["type"]]
            choices = {"choices": row["choices"]} if "choices" in row else {}
            parser.add_argument(f"--{row['name']}", type=kind, nargs=row.get("nargs"), **options, **choices)
    return parser


ARGPARSE = argparse_parser()


@st.composite
def flag_words(draw):
    """A flag with values that suit it, written in one of the ways that argparse takes."""
    flag = TABLE[draw(st.sampled_from(sorted(TABLE)))]
    if flag.type == "bool":
        return [f"--{flag.name}"]
    texts = {
        "int": st.integers(-(10**6), 10**6).map(str),
        "float": st.decimals(-1000, 1000, places=3).map(str),
        "str": st.text("ab{}/:. \n'\"", max_size=6),
    }
    one = st.sampled_from(flag.choices) if flag.choices else texts[flag.type]
    count = flag.nargs if isinstance(flag.nargs, int) else draw(st.integers(flag.fewest, 3)) if flag.nargs else 1
    values = [draw(one) for _ in range(count)]
    if flag.nargs is None and draw(st.booleans()):
        return [f"--{flag.name}={values[0]}"]
    return [f"--{flag.name}", *values]


@given(st.lists(flag_words(), max_size=6))
@settings(deadline=None)
def test_words_mean_what_argparse_says(groups):
    texts = [text for group in groups for text in group]
    words = [Word(text, "") for text in texts]
    problems: list[str] = []

    read = {name: one.value for name, one in translated(flags_of(words, Vocabulary(TABLE), problems), problems).items()}

    assert not problems
    assert read == vars(ARGPARSE.parse_args(texts))
    assert vars(ARGPARSE.parse_args(argv_of(nested(read)))) == read
