"""One test for each row of the integration guide's tables, on real Ray with two nodes."""

from __future__ import annotations

import pickle
import socket

import pytest
from ray.exceptions import GetTimeoutError

from dlrl_core import RLJobBuilder, RoleType
from dlrl_core.errors import CallTimeoutError, WorkloadCallError

CONFIG = {
    "lr": 0.1,
    "nothing": None,
    "yes": True,
    "no": False,
    "text": "two\nlines, 'single' and \"double\" quotes, ünïcödé, \\backslash\\",
    "number_like": "007",
    "words_like_values": ["None", "true", "1e-3"],
    "nested": {"copied": "${lr}", "list": [1, 2.5, None]},
}


@pytest.fixture(scope="module")
def seen(cluster_2_nodes_8_gpus, tmp_path_factory):
    """What one job with all five roles saw; actor and rollout share devices."""
    module, cls = "sample_jobs.probe", "ProbeWorkload"
    job = (
        RLJobBuilder()
        .node_num(2)
        .device_per_node(4)
        .config(CONFIG)
        .global_env({"SHARED": "for all", "OWN": "from global"})
        .trainer("sample_jobs.probe", "ProbeTrainer")
        .actor(module, cls).total(2).per_node(1).env({"OWN": "from role", "PYTHONHASHSEED": "11"})
        .rollout(module, cls).total(2).per_node(1)
        .reference(module, cls).total(2).per_node(2)
        .reward(module, cls).total(1).resource({"GPU": 0, "CPU": 0.5})
        .critic(module, cls).total(1).resource({"GPU": 0.25})
        .with_collocation("actor", "rollout")
        .build()
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        return job.submit("tables", address=cluster_2_nodes_8_gpus).value


@pytest.fixture
def actors(seen):
    return seen["properties"][RoleType.ACTOR]


def all_workloads(seen):
    return [facts for role in seen["properties"].values() for facts in role]


# ---- BaseWorkload: core properties


def test_master_handle_reaches_the_master(seen):
    assert all(facts["master_answers"] for facts in all_workloads(seen))


def test_config_is_an_omegaconf_with_every_value_unchanged(seen):
    for facts in all_workloads(seen):
        assert facts["config_is_dictconfig"]
        assert facts["config"] == CONFIG
        assert facts["resolved"]["nested"]["copied"] == 0.1


def test_name_is_role_and_rank(seen):
    names = [facts["name"] for facts in all_workloads(seen)]
    assert names == [
        "actor-0", "actor-1", "rollout-0", "rollout-1", "reference-0", "reference-1", "reward-0", "critic-0",
    ]  # fmt: skip


def test_role_is_the_role_type(seen):
    assert [facts["role"] for facts in seen["properties"][RoleType.REWARD]] == [RoleType.REWARD]
    assert [facts["role"] for facts in seen["properties"][RoleType.REFERENCE]] == [RoleType.REFERENCE] * 2


def test_rank_counts_through_the_role(actors):
    assert [facts["rank"] for facts in actors] == [0, 1]


def test_word_size_is_the_size_of_the_role(seen):
    assert [facts["word_size"] for facts in all_workloads(seen)] == [2, 2, 2, 2, 2, 2, 1, 1]
    assert [facts["world_size"] for facts in all_workloads(seen)] == [2, 2, 2, 2, 2, 2, 1, 1]


def test_local_rank_counts_on_the_node(seen):
    assert [facts["local_rank"] for facts in seen["properties"][RoleType.ACTOR]] == [0, 0]
    assert [facts["local_rank"] for facts in seen["properties"][RoleType.REFERENCE]] == [0, 1]


def test_local_world_size_is_the_size_of_the_role_on_the_node(seen):
    assert [facts["local_world_size"] for facts in seen["properties"][RoleType.ACTOR]] == [1, 1]
    assert [facts["local_world_size"] for facts in seen["properties"][RoleType.REFERENCE]] == [2, 2]


def test_torch_master_addr_is_rank_0s_node(actors):
    assert {facts["torch_master_addr"] for facts in actors} == {actors[0]["node_address"]}


def test_torch_master_port_is_one_free_port_for_each_role(seen):
    ports = {}
    for role, workloads in seen["properties"].items():
        assert len({facts["torch_master_port"] for facts in workloads}) == 1
        ports[role] = workloads[0]["torch_master_port"]
    assert len(set(ports.values())) == len(ports)
    with socket.socket() as probe:
        probe.bind(("", ports[RoleType.ACTOR]))


def test_rendezvous_is_also_in_the_environment(actors):
    for facts in actors:
        env = facts["env"]
        assert (env["RANK"], env["WORLD_SIZE"]) == (str(facts["rank"]), "2")
        assert (env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("0", "1")
        assert env["MASTER_ADDR"] == facts["torch_master_addr"]
        assert env["MASTER_PORT"] == str(facts["torch_master_port"])


def test_env_of_a_role_wins_over_global_env(seen):
    assert [facts["env"]["SHARED"] for facts in all_workloads(seen)] == ["for all"] * 8
    assert [facts["env"]["OWN"] for facts in all_workloads(seen)] == ["from role"] * 2 + ["from global"] * 6


def test_variables_that_count_at_process_start_are_there(seen):
    assert [facts["hash_seed"] for facts in seen["properties"][RoleType.ACTOR]] == ["11", "11"]


def test_properties_are_there_in_the_constructor(actors):
    assert [facts["at_construction"] for facts in actors] == [("actor-0", 0, 2), ("actor-1", 1, 2)]


# ---- BaseWorkload: core methods


@pytest.mark.parametrize("role", list(RoleType))
@pytest.mark.parametrize("asked", list(RoleType))
def test_is_role_methods_are_true_for_their_role_alone(seen, role, asked):
    for facts in seen["properties"][role]:
        assert facts[f"is_{asked}_role"] is (role is asked)


def test_get_device_collocation_names_the_sharing_roles(seen):
    assert {facts["get_device_collocation"] for facts in seen["properties"][RoleType.ROLLOUT]} == {"ACTOR,ROLLOUT"}
    assert {facts["get_device_collocation"] for facts in seen["properties"][RoleType.REFERENCE]} == {None}


def test_collocated_ranks_are_on_the_same_device_and_nobody_else_is(seen):
    def place(facts):
        return facts["node"], facts["devices"]

    actors, rollouts = seen["properties"][RoleType.ACTOR], seen["properties"][RoleType.ROLLOUT]
    assert [place(facts) for facts in actors] == [place(facts) for facts in rollouts]
    others = [*seen["properties"][RoleType.REFERENCE], *seen["properties"][RoleType.CRITIC]]
    assert not {place(facts) for facts in others} & {place(facts) for facts in actors}


# ---- trainer_invocation: attributes


def test_blocking_false_returns_a_handle_before_the_method_ends(seen):
    calls = seen["calls"]
    assert calls["a_returned_after"] < 1.5  # the method itself takes 2 s
    assert calls["a_is_handle"] == "RoleCall"
    assert calls["a_refs"] == ["ObjectRef", "ObjectRef"]
    assert calls["a"] == calls["a_through_ray"] == [("a", 0, "x"), ("a", 1, "x")]


def test_ray_get_takes_what_blocking_false_returns(seen):
    found = seen["calls"]["as_refs"]
    assert found["slow"] == [("a", 0, "x"), ("a", 1, "x")]
    assert found["post_func"] == 10
    assert found["list"] == [[[1, 2], [3, 4]], [5]]
    assert GetTimeoutError in found["timeout"]


def test_ray_wait_takes_it_too_and_it_is_ready_when_all_parts_are(seen):
    found = seen["calls"]["as_refs"]
    assert found["wait"] == [[False, False], [True]]
    assert found["no_time"] == [0, 1]
    assert found["all"] == [3, 0]


def test_blocking_true_returns_the_results_in_rank_order(seen):
    assert seen["calls"]["default_text"] == ["text", "text"]


def test_is_async_waits_for_all_targets(seen):
    assert seen["calls"]["b"] == [("b", 0, "y"), ("b", 1, "y")]


def test_timeout_names_the_missing_ranks_and_carries_the_results_that_came(seen):
    error = seen["errors"]["timeout"]
    assert isinstance(error, CallTimeoutError)
    assert (error.role, error.method, error.missing, error.results) == ("actor", "slow_on_rank_1", (1,), {0: 0})
    assert str(error) == (
        "role 'actor' did not answer 'slow_on_rank_1' within 1 s on rank 1; 1 of 2 results came and are in .results"
    )


def test_target_rank0_reaches_rank_0_alone_and_unsharded(seen):
    assert seen["calls"]["only_first"] == [(0, [1, 2])]


def test_auto_shard_splits_batches_in_rank_order(seen):
    calls = seen["calls"]
    assert calls["default_even"] == [[1, 2], [3, 4]]
    assert calls["default_uneven"] == [[1, 2], [3]]
    assert calls["default_dict"] == [{"x": [1], "y": [3]}, {"x": [2], "y": [4]}]
    assert calls["default_array"] == [[0, 1], [2, 3]]
    assert calls["as_keyword"] == [[1, 2], [3, 4]]


def test_auto_shard_gives_the_rest_whole_to_each(seen):
    calls = seen["calls"]
    assert calls["default_short"] == [[1], [1]]
    assert calls["whole"] == [[1, 2, 3, 4]] * 2


def test_auto_shard_false_gives_everything_whole_to_each(seen):
    assert seen["calls"]["unsharded"] == [[1, 2, 3, 4]] * 2
    assert seen["calls"]["options"] == [[1, 2]] * 2
    assert seen["calls"]["big_array"] == [1_600_000] * 2


def test_pre_func_returning_one_value_replaces_the_argument(seen):
    assert seen["calls"]["c_low"] == [1, 1]
    assert seen["calls"]["c_high"] == [6, 6]


def test_pre_func_may_return_args_and_kwargs(seen):
    assert seen["calls"]["prepared"] == ["ABAB", "ABAB"]


def test_post_func_gets_the_list_of_results(seen):
    assert seen["calls"]["summed"] == 10


def test_results_go_by_reference_from_role_to_role(seen):
    assert seen["calls"]["by_reference"] == [[1, 2], [3, 4]]
    assert seen["calls"]["by_reference_split"] == [[1, 2, 3, 4]]
    assert seen["calls"]["by_reference_whole"] == [[[1, 2], [3, 4]]] * 2


def test_calls_of_one_workload_run_in_the_order_they_were_made(seen):
    assert seen["calls"]["order"] == list(range(20))


def test_coroutine_methods_of_one_workload_run_side_by_side(seen):
    assert max(seen["calls"]["overlap"]) > 1


# ---- errors on the way


def test_an_exception_arrives_with_role_rank_method_and_remote_traceback(seen):
    error = seen["errors"]["raised"]
    assert isinstance(error, WorkloadCallError)
    assert (error.role, error.rank, error.method) == ("actor", 1, "fail_on_rank_1")
    assert str(error).startswith("role 'actor' rank 1 raised ValueError: rank one is unhappy in 'fail_on_rank_1'")
    assert 'raise ValueError("rank one is unhappy")' in error.cause.traceback
    assert isinstance(error.cause.load(), ValueError)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__


def test_an_exception_that_can_not_be_unpickled_arrives_with_its_text(seen):
    error = seen["errors"]["unpicklable"]
    assert isinstance(error, WorkloadCallError)
    assert "NoReduceError: left and right" in str(error)
    assert error.cause.load() is None


def test_a_result_that_can_not_be_unpickled_names_role_rank_and_method(seen):
    error = seen["errors"]["unreadable"]
    assert isinstance(error, WorkloadCallError)
    assert (error.role, error.rank, error.method) == ("actor", 1, "return_unreadable")
    assert "rank 1 returned what the trainer can't unpickle from 'return_unreadable': TypeError" in error.summary


def test_an_unknown_method_is_refused_before_anything_is_sent(seen):
    unknown = str(seen["errors"]["unknown_method"])
    assert unknown.startswith("role 'actor' has no method 'defualt'; did you mean 'default'? it has: ")


# ---- BaseTrainer: core properties and methods


def test_trainers_config_is_an_omegaconf(seen):
    assert seen["trainer"]["config_is_dictconfig"]
    assert seen["trainer"]["lr"] == 0.1


def test_actor_handles_has_all_workloads_by_role(seen):
    assert seen["trainer"]["actor_handles"] == {
        RoleType.ACTOR: ["actor-0", "actor-1"],
        RoleType.ROLLOUT: ["rollout-0", "rollout-1"],
        RoleType.REFERENCE: ["reference-0", "reference-1"],
        RoleType.REWARD: ["reward-0"],
        RoleType.CRITIC: ["critic-0"],
    }


@pytest.mark.parametrize(
    ("name", "count"), [("actors", 2), ("references", 2), ("rollouts", 2), ("rewards", 1), ("critics", 1)]
)
def test_handles_of_a_role_are_called_like_ray_handles(seen, name, count):
    assert seen["trainer"]["through_handles"][name] == [name] * count


def test_actor_classes_gives_the_class_of_a_role(seen):
    assert seen["trainer"]["class_of_actor"] == "ProbeWorkload"


def test_init_runs_before_fit(seen):
    assert seen["was_initialised"]


def test_get_role_groups_names_the_existing_ones(seen):
    assert seen["trainer"]["role_groups"] == ["RG_ACTOR", "RG_ROLLOUT", "RG_REFERENCE", "RG_REWARD", "RG_CRITIC"]
    assert seen["trainer"]["is_bound"]


def test_get_workload_resource_gives_what_each_workload_holds(seen):
    assert seen["trainer"]["resources"] == {
        RoleType.ACTOR: {"CPU": 1.0, "GPU": 0.5},
        RoleType.ROLLOUT: {"CPU": 1.0, "GPU": 0.5},
        RoleType.REFERENCE: {"CPU": 1.0, "GPU": 1.0},
        RoleType.REWARD: {"CPU": 0.5, "GPU": 0.0},
        RoleType.CRITIC: {"CPU": 1.0, "GPU": 0.25},
    }
    assert str(seen["errors"]["unknown_role"]).startswith("the job has no role 'critc'; it has: 'actor'")


def test_an_unknown_role_group_says_which_there_are(seen):
    assert str(seen["errors"]["unknown_group"]).startswith(
        "there is no role group 'RG_REWARDS'; this job has: RG_ACTOR"
    )
