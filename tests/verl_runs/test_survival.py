"""Real verl with FSDP and vLLM: every process of a job is killed, and no committed step is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_run import BUDGET, Watched, environment, survive
from verl_job import FSDP, MEGATRON, overrides, start

from dlrl_core import RLJobBuilder

EXAMPLE = Path(__file__).parents[2] / "examples" / "verl_ppo" / "train_fsdp_grpo.sh"


def test_ppo_on_fsdp(ray_4_gpus, tiny_assets, tmp_path):
    words = overrides(FSDP, tiny_assets, tmp_path, trainer__total_training_steps=20, trainer__total_epochs=3)
    deaths = {
        "actor-1": {"actor-0", "actor-1"},
        "rollout-1": {"rollout-1"},
        "critic-0": {"critic-0", "critic-1"},
        "reward-0": {"reward-0"},
        "trainer": set(),
    }

    assert survive(start("fsdp", words), deaths, seed=5)["steps"] == 20


@pytest.mark.long
def test_ppo_on_megatron_with_data_parallel_2(ray_4_gpus, tiny_assets, tmp_path):
    single = {
        f"{part}__megatron__tensor_model_parallel_size": 1
        for part in ("actor_rollout_ref__actor", "actor_rollout_ref__ref", "critic")
    }
    words = overrides(
        MEGATRON, tiny_assets, tmp_path, trainer__total_training_steps=16, trainer__total_epochs=3, **single
    )
    deaths = {"rollout-0": {"rollout-0"}, "critic-1": {"critic-0", "critic-1"}, "actor-0": {"actor-0", "actor-1"}}

    assert survive(start("dp", words), deaths, seed=6)["steps"] == 16


def test_the_example_of_grpo_survives(ray_4_gpus, tiny_assets, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSETS", str(tiny_assets))
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.chdir(EXAMPLE.parents[2])
    words = ["bash", str(EXAMPLE), "trainer.total_training_steps=16", "trainer.total_epochs=3"]
    job = (
        RLJobBuilder()
        .framework("verl")
        .config(words)
        .global_env(environment())
        .restart_budget(**BUDGET)
        .allow_chaos()
        .build()
    )
    watched = Watched(job.submit("grpo", blocking=False))
    deaths = {"rollout-0": {"rollout-0"}, "actor-0": {"actor-0", "actor-1"}, "reward-0": {"reward-0"}}

    assert survive(watched, deaths, seed=7)["steps"] == 16
    assert {one["name"].split("-")[0] for one in watched.handle.status().workloads} == {"actor", "rollout", "reward"}
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "16"
