"""Every launch script of verl's examples for PPO and GRPO yields a plan, but for those that are listed with a reason."""

from __future__ import annotations

import pytest
from verl_sources import NOT_COMMITTED, PLANNED, REFUSED, SCRIPTS, UNSUPPORTED, job_of, job_of_script, needs_verl

from dlrl_core.errors import SpecError

pytestmark = needs_verl

SHAPES = {
    "ppo_trainer/run_qwen3_8b_megatron": ({"actor": 8, "critic": 8, "rollout": 8, "reward": 8}, (1, 8)),
    "ppo_trainer/run_qwen3_8b_fsdp": ({"actor": 8, "critic": 8, "rollout": 8, "reward": 8}, (1, 8)),
    "grpo_trainer/run_qwen3_8b_megatron": ({"actor": 8, "rollout": 8, "reward": 8}, (1, 8)),
    "grpo_trainer/run_deepseek_v3_671b_megatron": ({"actor": 96, "rollout": 96, "reward": 8}, (12, 8)),
}

MORE_FOR_VLLM = {"grpo_trainer/run_qwen3_30b_a3b_megatron": ["actor_rollout_ref.rollout.expert_parallel_size=4"]}
"""What else has to be said: verl asks more of it than of TensorRT-LLM."""


@pytest.mark.parametrize("name", PLANNED)
def test_each_launch_script_yields_a_plan(name):
    job = job_of_script(name)

    planned = [row["role"] for row in job.plan().rows()]

    assert {role.role: role.total for role in job.spec.roles} == {role: planned.count(role) for role in planned}
    assert "actor" in planned and "rollout" in planned


@pytest.mark.parametrize("name", SHAPES)
def test_a_plan_has_the_roles_and_the_pool_of_the_script(name):
    roles, shape = SHAPES[name]
    spec = job_of_script(name).spec

    assert {role.role: role.total for role in spec.roles} == roles
    assert [set(group) for group in spec.with_collocation] == [set(roles) - {"reward"}]
    assert (spec.node_num, spec.device_per_node) == shape


@pytest.mark.parametrize(("name", "reason"), [*REFUSED.items(), *UNSUPPORTED.items(), *NOT_COMMITTED.items()])
def test_a_script_that_verl_refuses_or_dlrl_cannot_run_is_refused_with_the_reason(name, reason):
    with pytest.raises(SpecError) as caught:
        job_of(SCRIPTS[name])

    assert reason in str(caught.value)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_script_for_another_engine_yields_a_plan_when_told_to_use_vllm(name):
    job = job_of([*SCRIPTS[name], "actor_rollout_ref.rollout.name=vllm", *MORE_FOR_VLLM.get(name, [])])

    assert {"actor", "rollout"} <= {row["role"] for row in job.plan().rows()}
