"""Every launch script that came with OpenRLHF, of four versions, yields a plan."""

from __future__ import annotations

import pytest
from openrlhf_sources import each_script, job_of, scripts

pytestmark = pytest.mark.framework  # where OpenRLHF is installed, its own parser checks each script too

SHAPES = {
    ("0.11.2", "train_ppo_ray_hybrid_engine"): (
        {"actor": 8, "reference": 8, "critic": 8, "reward": 8, "rollout": 8},
        [("actor", "reference", "critic", "reward", "rollout")],
        (1, 8),
    ),
    ("0.11.2", "train_ppo_ray_slurm"): (
        {"actor": 4, "reference": 4, "critic": 4, "reward": 4, "rollout": 4},
        [("actor", "reference"), ("critic", "reward")],
        (2, 8),
    ),
    ("0.11.2", "train_reinforce_baseline_ray_agent_async"): (
        {"actor": 4, "reference": 4, "rollout": 2},
        [("actor", "reference")],
        (1, 8),
    ),
    ("0.11.2", "train_flash_reinforce_ray_agent_async"): ({"actor": 1, "rollout": 7}, [], (1, 8)),
    ("0.8.11", "train_ppo_llama_with_remote_rm"): (
        {"actor": 2, "reference": 2, "critic": 2, "rollout": 2},
        [("actor", "reference")],
        (1, 8),
    ),
    ("0.8.11", "train_ppo_llama_ray_70b"): (
        {"actor": 8, "reference": 4, "critic": 8, "reward": 4, "rollout": 4},
        [],
        (4, 8),
    ),
}


@each_script()
def test_each_launch_script_yields_a_plan(words):
    job = job_of(*words)

    planned = [row["role"] for row in job.plan().rows()]

    assert {role.role: role.total for role in job.spec.roles} == {role: planned.count(role) for role in planned}
    assert "actor" in planned and "rollout" in planned


def test_a_plan_has_the_roles_and_the_collocation_of_the_script():
    for (version, name), (roles, collocations, shape) in SHAPES.items():
        spec = job_of(*scripts(version)[name]).spec

        assert {role.role: role.total for role in spec.roles} == roles, name
        assert [tuple(group) for group in spec.with_collocation] == collocations, name
        assert (spec.node_num, spec.device_per_node) == shape, name
