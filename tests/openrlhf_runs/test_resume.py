"""A job that was stopped as a whole goes on from OpenRLHF's own checkpoints, at the right step."""

from __future__ import annotations

import pytest
from openrlhf_job import LIMIT_S, flags, start

from benchmarks.openrlhf_curves import curves


@pytest.mark.long
def test_a_stopped_job_goes_on_where_its_checkpoints_end(ray_8_gpus, tiny_assets, tmp_path):
    words = flags(
        tiny_assets,
        tmp_path,
        ckpt__save_steps=2,
        data__max_samples=48,
        logger__tensorboard_dir=tmp_path / "tensorboard",
    )
    first = start("first", words)
    first.wait_for_step(3)
    first.handle.stop()
    (tmp_path / "ckpt" / "_critic" / "latest").write_text("global_step1")  # as a death between the two saves leaves it

    second = start("second", [*words, "--ckpt.load_enable"])
    second.wait_for_step(2)
    result = second.handle.wait(timeout=LIMIT_S)

    assert second.steps[0] in (2, 4), "it goes on after the last checkpoint, not from the beginning"
    assert result.value["steps"] == 6
    assert (tmp_path / "ckpt" / "_actor" / "latest").read_text() == "global_step6"
    assert (tmp_path / "ckpt" / "_critic" / "latest").read_text() == "global_step6"
    assert sorted({step for step, *_ in curves(tmp_path / "tensorboard")["train/policy_loss"]}) == [1, 2, 3, 4, 5, 6]
