"""The same overrides and seed with verl alone and under dlrl: the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from framework_run import LIMIT_S, environment
from verl_job import MEGATRON, overrides, start

from benchmarks.curves import curves

ROOT = Path(__file__).parents[2]
STEPS = 3
COMPARED = (
    "critic/score/mean",
    "actor/pg_loss",
    "actor/grad_norm",
    "critic/vf_loss",
    "critic/grad_norm",
    "actor/ppo_kl",
)


@pytest.mark.long
def test_the_first_steps_are_those_of_stock_verl(ray_4_gpus, tiny_assets, tmp_path):
    def words(side: str) -> list[str]:
        return overrides(
            MEGATRON,
            tiny_assets,
            tmp_path / side,
            trainer__use_v1=False,
            trainer__total_training_steps=STEPS,
            trainer__logger="[tensorboard]",
            data__shuffle=False,
            actor_rollout_ref__rollout__full_determinism=True,
        )

    start("equal", words("dlrl"), TENSORBOARD_DIR=str(tmp_path / "dlrl")).handle.wait(timeout=LIMIT_S)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.verl_stock", *words("stock")],
        cwd=ROOT,
        env={**os.environ, **environment(), "TENSORBOARD_DIR": str(tmp_path / "stock")},
        check=True,
        timeout=LIMIT_S,
        capture_output=True,
    )

    ours, theirs = (curves(tmp_path / side) for side in ("dlrl", "stock"))
    for name in COMPARED:
        assert [step for step, *_ in ours[name]] == list(range(1, STEPS + 1))
        assert [value for _, value, _ in ours[name]] == pytest.approx(
            [value for _, value, _ in theirs[name]], rel=1e-3, abs=1e-5
        ), name
