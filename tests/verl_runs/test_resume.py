"""A job that was stopped as a whole goes on from verl's own checkpoints, at the right step, in the same order."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pandas
import pytest
from framework_run import LIMIT_S
from verl_job import MEGATRON, overrides, start

REWARD = Path(__file__).parent / "noting_reward.py"
BATCH = 8
STEPS = 8


@pytest.mark.long
def test_a_stopped_ppo_goes_on_where_its_checkpoint_ends(ray_4_gpus, tiny_assets, tmp_path):
    words = overrides(
        MEGATRON,
        tiny_assets,
        tmp_path,
        trainer__total_training_steps=STEPS,
        trainer__save_freq=2,
        reward__custom_reward_function__path=REWARD,
    )
    first = start("first", words, SEEN_PROMPTS=str(tmp_path / "first"))
    first.wait_for_step(6)
    first.handle.stop()
    saved = tmp_path / "checkpoints"
    newest = int((saved / "latest_checkpointed_iteration.txt").read_text())
    shutil.rmtree(saved / f"global_step_{newest}" / "critic")  # torn: of this step, only the actor is there

    second = start("second", words, SEEN_PROMPTS=str(tmp_path / "second"))
    second.wait_for_step(newest - 1)
    result = second.handle.wait(timeout=LIMIT_S)

    assert second.steps[0] == newest - 1, "it goes on after the last whole checkpoint"
    assert result.value["steps"] == STEPS
    assert (saved / "latest_checkpointed_iteration.txt").read_text() == str(STEPS)
    seen = _lines(tmp_path / "first")[: (newest - 2) * BATCH] + _lines(tmp_path / "second")
    prompts = pandas.read_parquet(tiny_assets / "train.parquet")["extra_info"]
    assert Counter(seen) == Counter(str(one["index"]) for one in prompts), "both runs together saw each prompt once"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()
