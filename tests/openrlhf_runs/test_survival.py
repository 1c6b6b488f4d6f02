"""Real OpenRLHF with DeepSpeed and vLLM: every process of a job is killed, and no committed step is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_run import survive
from openrlhf_job import flags, start

pytestmark = pytest.mark.long
REWARD_FUNCTION = Path(__file__).parent / "reward_function.py"


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
