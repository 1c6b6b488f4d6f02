"""Real OpenRLHF with DeepSpeed and vLLM: every process of a job is killed, and no committed step is lost."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from checks import wait_until
from openrlhf_job import LIMIT_S, Watched, flags, start

REWARD_FUNCTION = Path(__file__).parent / "reward_function.py"


def survive(job: Watched, deaths: dict[str, set[str]], *, seed: int) -> Any:
    """Kill one after the other, each at some moment of a step; `deaths` tells whose processes are new after each."""
    chance = random.Random(seed)
    job.wait_for_step(1)
    expected = dict.fromkeys(job.restarts(), 0)
    for who, renewed in deaths.items():
        job.hurt(who, chance=chance)
        expected.update({name: expected[name] + 1 for name in renewed})
        wait_until(lambda: job.restarts() == expected, f"what restarts after the death of {who}: {expected}", LIMIT_S)
        job.wait_for_step(job.look() + 1)
    result = job.handle.wait(timeout=LIMIT_S)
    assert job.restarts() == expected, "whoever was not meant to restart did not"
    assert job.steps == sorted(job.steps), "a committed step was done again"
    assert result.value["history"][-1]["step"] == result.value["steps"]
    return result.value


def test_ppo_of_two_ranks(ray_8_gpus, tiny_assets, tmp_path):
    words = flags(tiny_assets, tmp_path, actor__num_gpus_per_node=2, critic__num_gpus_per_node=2, train__num_episodes=3)
    deaths = {
        "rollout-0": {"rollout-0"},
        "reference-0": {"reference-0"},
        "reward-0": {"reward-0"},
        "critic-1": {"critic-0", "critic-1"},
        "actor-1": {"actor-0", "actor-1"},
        "trainer": set(),
        "master": set(),
    }

    assert survive(start("ppo", words), deaths, seed=5)["steps"] == 24
    assert (tmp_path / "final" / "config.json").exists()


@pytest.mark.long
def test_colocated_models_with_zero_3(ray_8_gpus, tiny_assets, tmp_path):
    words = flags(tiny_assets, tmp_path, train__colocate_all=True, ds__zero_stage=3, train__num_episodes=3)
    deaths = {
        "rollout-0": {"rollout-0"},
        "critic-0": {"critic-0"},
        "reward-0": {"reward-0"},
        "actor-0": {"actor-0"},
        "reference-0": {"reference-0"},
    }
    job = start("colocated", words)

    assert survive(job, deaths, seed=6)["steps"] == 24
    assert len({one["device_ids"][0] for one in job.handle.status().workloads}) == 1


def test_asynchronous_grpo_with_a_reward_function(ray_8_gpus, tiny_assets, tmp_path):
    words = flags(
        tiny_assets,
        tmp_path,
        train__async_enable=True,
        train__num_episodes=3,
        algo__advantage__estimator="group_norm",
        rollout__n_samples_per_prompt=2,
        rollout__batch_size=4,
        reward__model_name_or_path=None,
        reward__num_gpus_per_node=None,
        critic__num_gpus_per_node=None,
        reward__remote_url=REWARD_FUNCTION,
    )
    deaths = {
        "actor-0": {"actor-0"},
        "rollout-0": {"rollout-0"},
        "trainer": set(),
        "reference-0": {"reference-0"},
    }
    job = start("grpo", words)

    assert survive(job, deaths, seed=7)["steps"] == 48
    assert sorted(one["name"] for one in job.handle.status().workloads) == ["actor-0", "reference-0", "rollout-0"]
