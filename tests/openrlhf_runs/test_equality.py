"""The same flags and seed with OpenRLHF alone and under dlrl: the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from framework_run import LIMIT_S, environment
from openrlhf_job import flags, start

from benchmarks.curves import curves

ROOT = Path(__file__).parents[2]
STEPS = 5
COMPARED = ("train/rollout/reward_mean", "train/policy_loss", "train/critic_loss", "train/kl", "train/actor_grad_norm")


@pytest.mark.long
def test_the_first_steps_are_those_of_stock_openrlhf(ray_8_gpus, tiny_assets, tmp_path):
    def words(side: str) -> list[str]:
        return flags(
            tiny_assets,
            tmp_path / side,
            data__max_samples=1,  # one prompt: OpenRLHF does not seed their order, nor vLLM that in which it batches
            train__num_episodes=STEPS,
            train__batch_size=1,
            train__micro_batch_size=1,
            rollout__batch_size=1,
            rollout__micro_batch_size=1,
            rollout__top_p=0.0001,  # always the likeliest token
            logger__tensorboard_dir=tmp_path / side / "tensorboard",
        )

    start("equal", words("dlrl")).handle.wait(timeout=LIMIT_S)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.openrlhf_stock", *words("stock")],
        cwd=ROOT,
        env={**os.environ, **environment()},
        check=True,
        timeout=LIMIT_S,
        capture_output=True,
    )

    ours, theirs = (curves(tmp_path / side / "tensorboard") for side in ("dlrl", "stock"))
    for name in COMPARED:
        assert [step for step, *_ in ours[name]] == list(range(1, STEPS + 1))
        assert [value for _, value, _ in ours[name]] == pytest.approx(
            [value for _, value, _ in theirs[name]], rel=1e-3, abs=1e-4
        ), name
