"""A job that was stopped as a whole goes on from OpenRLHF's own checkpoints, at the right step, in the same order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from framework_run import LIMIT_S
from openrlhf_job import flags, start

from benchmarks.curves import curves

REWARD_FUNCTION = Path(__file__).parent / "reward_function.py"
PROMPTS_A_STEP, SAMPLES = 4, 2


@pytest.mark.long
def test_a_stopped_grpo_goes_on_where_its_checkpoint_ends(ray_8_gpus, tiny_assets, tmp_path):
    words = flags(
        tiny_assets,
        tmp_path,
        algo__advantage__estimator="group_norm",
        rollout__n_samples_per_prompt=SAMPLES,
        rollout__batch_size=PROMPTS_A_STEP,
        reward__model_name_or_path=None,
        reward__num_gpus_per_node=None,
        critic__num_gpus_per_node=None,
        reward__remote_url=REWARD_FUNCTION,
        ckpt__save_steps=2,
        data__max_samples=40,
        logger__tensorboard_dir=tmp_path / "tensorboard",
    )
    first = start("first", words, SEEN_PROMPTS=str(tmp_path / "first"))
    first.wait_for_step(4)
    first.handle.stop()

    second = start("second", [*words, "--ckpt.load_enable"], SEEN_PROMPTS=str(tmp_path / "second"))
    second.wait_for_step(3)
    result = second.handle.wait(timeout=LIMIT_S)

    steps_before = second.steps[0] - 1
    assert steps_before in (2, 4, 6), "it goes on after the last checkpoint, not from the beginning"
    assert result.value["steps"] == 10
    assert (tmp_path / "ckpt" / "_actor" / "latest").read_text() == "global_step10"
    assert {step for step, *_ in curves(tmp_path / "tensorboard")["train/policy_loss"]} == {*range(1, 11)}
    seen = _lines(tmp_path / "first")[: steps_before * PROMPTS_A_STEP * SAMPLES] + _lines(tmp_path / "second")
    prompts = [json.loads(line)["input"] for line in _lines(tiny_assets / "prompts.jsonl")[:40]]
    assert Counter(seen) == Counter(prompts * SAMPLES), "both runs together saw each prompt once"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()
