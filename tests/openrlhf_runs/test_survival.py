"""Real OpenRLHF with DeepSpeed and vLLM: every process of a job is killed, and no committed step is lost."""

from __future__ import annotations

import random

from openrlhf_job import LIMIT_S, flags, start


def test_ppo_of_two_ranks_survives_the_death_of_every_process(ray_8_gpus, tiny_assets, tmp_path):
    chance = random.Random(5)
    words = flags(tiny_assets, tmp_path, actor__num_gpus_per_node=2, critic__num_gpus_per_node=2, train__num_episodes=2)
    job = start("ppo", words)

    # who is killed, and whose processes are new after it
    deaths = [
        ("rollout-0", {"rollout-0"}),
        ("reference-0", {"reference-0"}),
        ("reward-0", {"reward-0"}),
        ("critic-1", {"critic-0", "critic-1"}),
        ("actor-1", {"actor-0", "actor-1"}),
        ("trainer", set()),
        ("master", set()),
    ]
    expected = dict.fromkeys(
        [*["actor-0", "actor-1", "critic-0", "critic-1", "reference-0", "reward-0", "rollout-0"]], 0
    )
    step = 1
    for who, renewed in deaths:
        job.hurt(who, after_step=step, chance=chance)
        step = job.steps[-1] + 2
        job.wait_for_step(step)
        expected.update({name: expected[name] + 1 for name in renewed})
        assert job.restarts() == expected, f"after the death of {who}"
    result = job.handle.wait(timeout=LIMIT_S)

    assert result.value["steps"] == 16
    assert job.steps == sorted(job.steps), "a committed step was done again"
    assert [one["step"] for one in result.value["history"]][-1] == 16
    assert (tmp_path / "final" / "config.json").exists()
