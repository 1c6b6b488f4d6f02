"""Which roles a config has, how many of each, who shares devices, and what a death restarts."""

from __future__ import annotations

import pytest
from openrlhf_sources import SMALL, job_of, read_words

from dlrl_core import RLJobBuilder
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef

EQUAL = (
    "--actor.num_gpus_per_node 2 --critic.num_gpus_per_node 2 --ref.num_gpus_per_node 2 --reward.num_gpus_per_node 2"
)
ALL = ("actor", "reference", "critic", "reward", "rollout")


def spec_of(words: str):
    return job_of(*SMALL, *words.split()).spec


@pytest.mark.parametrize(
    ("words", "totals"),
    [
        ("", {"actor": 2, "reference": 1, "critic": 2, "reward": 1, "rollout": 2}),
        ("--actor.num_nodes 2", {"actor": 4, "reference": 1, "critic": 2, "reward": 1, "rollout": 2}),
        ("--vllm.tensor_parallel_size 4", {"actor": 2, "reference": 1, "critic": 2, "reward": 1, "rollout": 2}),
        ("--algo.kl.init_coef 0", {"actor": 2, "critic": 2, "reward": 1, "rollout": 2}),
        ("--algo.advantage.estimator reinforce", {"actor": 2, "reference": 1, "reward": 1, "rollout": 2}),
        (
            "--algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 2 --train.agent_func_path a.py",
            {"actor": 2, "reference": 1, "rollout": 2},
        ),
        ("--reward.remote_url http://h/get_reward", {"actor": 2, "reference": 1, "critic": 2, "rollout": 2}),
    ],
)
def test_a_role_is_there_if_openrlhf_would_have_it(words, totals):
    assert {role.role.value: role.total for role in spec_of(words).roles} == totals


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        ("", []),
        ("--train.colocate_actor_ref", [("actor", "reference")]),
        ("--train.colocate_critic_reward", [("critic", "reward")]),
        ("--train.colocate_all", [ALL]),
        ("--train.colocate_all --train.async_enable", [ALL[:-1]]),
        (
            "--train.colocate_all --train.colocate_critic_reward",
            [("actor", "reference", "rollout"), ("critic", "reward")],
        ),
        ("--train.colocate_all --algo.kl.init_coef 0 --reward.remote_url f.py", [("actor", "critic", "rollout")]),
        ("--train.colocate_actor_ref --algo.kl.init_coef 0", []),
        ("--train.colocate_critic_reward --algo.advantage.estimator reinforce", []),
        ("--colocate_all_models", [ALL]),
    ],
)
def test_roles_share_devices_as_in_openrlhf(words, groups):
    assert [tuple(group) for group in spec_of(f"{EQUAL} {words}").with_collocation] == groups


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("", (1, 8)),
        (f"{EQUAL} --train.colocate_all", (1, 2)),
        ("--vllm.num_engines 3", (2, 8)),
        ("--actor.num_gpus_per_node 4 --actor.num_nodes 2 --critic.num_gpus_per_node 4", (4, 4)),
        ("--actor.num_gpus_per_node 16", (2, 16)),
    ],
)
def test_the_cluster_is_the_smallest_of_usual_nodes(words, shape):
    job = job_of(*SMALL, *words.split())

    assert (job.spec.node_num, job.spec.device_per_node) == shape
    assert job.plan().device_count <= shape[0] * shape[1]


def test_each_role_restarts_as_little_as_it_can():
    scopes = {role.role: role.failover for role in spec_of("").roles}
    of_many = {role.role: role.failover for role in spec_of(EQUAL).roles}

    assert scopes == {
        RoleType.ACTOR: "role",
        RoleType.CRITIC: "role",
        RoleType.REFERENCE: "workload",
        RoleType.REWARD: "workload",
        RoleType.ROLLOUT: "workload",
    }
    assert of_many[RoleType.REFERENCE] == of_many[RoleType.REWARD] == "role"


def test_trainer_and_roles_are_the_adapters_own():
    spec = spec_of("--train.async_enable")

    assert spec.trainer == ClassRef(module="dlrl_openrlhf.trainer", class_name="OpenRLHFTrainer")
    assert {role.cls.class_name for role in spec.roles} == {
        "ActorWorkload",
        "CriticWorkload",
        "ReferenceWorkload",
        "RewardWorkload",
        "RolloutWorkload",
    }


def test_what_the_builder_says_wins():
    job = RLJobBuilder().framework("openrlhf").config(SMALL).node_num(2).device_per_node(4).build()

    assert (job.spec.node_num, job.spec.device_per_node) == (2, 4)
    assert len(job.plan().nodes) == 2


def test_processes_get_what_openrlhf_gives_them_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    env = {"env_vars": {"TOKENIZERS_PARALLELISM": "false"}}
    job = RLJobBuilder().framework("openrlhf").config({**read_words(*SMALL), "runtime_env": env}).build()

    assert job.spec.global_env == {
        "NCCL_DEBUG": "INFO",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
    }


def test_no_call_may_hang_for_ever():
    assert {role.hang_limit for role in spec_of("").roles} == {4 * 3600.0}
