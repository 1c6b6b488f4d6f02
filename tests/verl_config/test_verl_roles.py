"""Which roles a config has, how many of each, who shares devices, and what a death restarts."""

from __future__ import annotations

import pytest
from verl_sources import REWARD_MODEL, changed, job_of

from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef


def spec_of(**values):
    return job_of(changed(**values)).spec


@pytest.mark.parametrize(
    ("values", "totals"),
    [
        ({}, {"actor": 4, "critic": 4, "rollout": 4, "reward": 2}),
        ({"trainer__nnodes": 2}, {"actor": 8, "critic": 8, "rollout": 8, "reward": 2}),
        ({"algorithm__adv_estimator": "grpo"}, {"actor": 4, "rollout": 4, "reward": 2}),
        (
            {"algorithm__adv_estimator": "grpo", "critic__enable": True},
            {"actor": 4, "critic": 4, "rollout": 4, "reward": 2},
        ),
        ({"critic__enable": False}, {"actor": 4, "rollout": 4, "reward": 2}),
        ({"actor_rollout_ref__actor__use_kl_loss": True}, {"actor": 4, "critic": 4, "rollout": 4, "reward": 2}),
    ],
)
def test_a_role_is_there_if_verl_would_have_it(values, totals):
    assert {role.role.value: role.total for role in spec_of(**values).roles} == totals


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ({}, [("actor", "critic", "rollout")]),
        ({"critic__enable": False}, [("actor", "rollout")]),
    ],
)
def test_roles_of_one_pool_share_its_devices(values, groups):
    assert [tuple(group) for group in spec_of(**values).with_collocation] == groups


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({}, (1, 4)),
        ({"trainer__nnodes": 2}, (2, 4)),
    ],
)
def test_the_cluster_is_verls_pool(values, shape):
    job = job_of(changed(**values))

    assert (job.spec.node_num, job.spec.device_per_node) == shape
    assert job.plan().device_count == shape[0] * shape[1]


def test_rank_i_of_each_role_is_on_one_device_and_nodes_are_filled_as_verl_fills_them():
    rows = job_of(changed(trainer__nnodes=2)).plan().rows()
    seats = {(row["role"], row["rank"]): (row["node"], row["devices"]) for row in rows}

    for rank in range(8):
        assert seats["actor", rank] == seats["critic", rank] == seats["rollout", rank]
    assert len({seats["actor", rank][0] for rank in range(4)}) == 1


def test_rewards_of_a_function_take_no_device():
    reward = spec_of().role(RoleType.REWARD)

    assert (reward.total, reward.resource["GPU"], reward.cls.module) == (2, 0, "dlrl_verl.reward")


def test_a_reward_model_has_a_server_on_each_device_of_the_policy():
    spec = spec_of(**REWARD_MODEL)

    assert [tuple(group) for group in spec.with_collocation] == [("actor", "critic", "rollout", "reward")]
    reward = spec.role(RoleType.REWARD)
    assert (reward.total, reward.cls.class_name) == (4, "RewardModelWorkload")


def test_a_reward_model_with_a_pool_of_its_own_has_nodes_of_its_own():
    pool = {
        "reward__reward_model__enable_resource_pool": True,
        "reward__reward_model__nnodes": 1,
        "reward__reward_model__rollout__free_cache_engine": False,
        "reward__custom_reward_function": {"path": "score.py"},
    }
    job = job_of(changed(**REWARD_MODEL, **pool, reward__reward_model__n_gpus_per_node=2))
    nodes = {role: {row["node"] for row in job.plan().rows() if row["role"] == role} for role in ("actor", "reward")}

    assert (job.spec.node_num, job.spec.device_per_node, job.spec.role(RoleType.REWARD).total) == (2, 4, 2)
    assert nodes["actor"].isdisjoint(nodes["reward"])


def test_each_role_restarts_as_little_as_it_can():
    assert {role.role.value: role.failover for role in spec_of().roles} == {
        "actor": "role",
        "critic": "role",
        "rollout": "workload",
        "reward": "workload",
    }


def test_trainer_and_roles_are_the_adapters_own():
    spec = spec_of()

    assert spec.trainer == ClassRef(module="dlrl_verl.trainer", class_name="VerlTrainer")
    assert [f"{role.cls.module}.{role.cls.class_name}" for role in spec.roles] == [
        "dlrl_verl.policy.ActorWorkload",
        "dlrl_verl.workloads.CriticWorkload",
        "dlrl_verl.rollout.RolloutWorkload",
        "dlrl_verl.reward.RewardWorkload",
    ]


@pytest.mark.parametrize(("device", "kind"), [("cuda", "GPU"), ("cpu", "GPU"), ("npu", "NPU")])
def test_devices_are_counted_as_ray_counts_them(device, kind):
    assert spec_of(trainer__device=device).device_type == kind


def test_exact_repetition_is_asked_for_in_the_environment():
    env = spec_of(actor_rollout_ref__rollout__full_determinism=True, actor_rollout_ref__rollout__seed=7).global_env

    assert (env["VERL_FULL_DETERMINISM"], env["PYTHONHASHSEED"]) == ("1", "7")
