"""CUDA_VISIBLE_DEVICES and its relatives, local_rank and the real device agree, in each of the three ways."""

from __future__ import annotations

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.scheduler.cluster_probe import view_cluster

HERE = "sample_jobs.places"


@pytest.fixture(scope="module")
def seen(cluster_2_nodes_8_gpus, tmp_path_factory) -> dict[str, dict]:
    """What one job saw: the critic takes the first devices, and each role another way."""
    builder = (
        RLJobBuilder().node_num(2).device_per_node(4).trainer(HERE, "Host")
        .critic(HERE, "Guest").total(2).per_node(2)
        .actor(HERE, "Guest").total(2).per_node(2).visible_devices("role")
        .rollout(HERE, "Guest").visible_devices("node")
        .reference(HERE, "Guest").env({"CUDA_VISIBLE_DEVICES": "7"})
        .reward(HERE, "Guest").resource({"GPU": 0, "CPU": 0.5})
        .with_host_collocation("critic", "actor")
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        value = builder.build().submit("sees", address=cluster_2_nodes_8_gpus).value
    return {one["name"]: one for one in value["last"]}


def test_by_default_a_process_sees_its_own_devices_alone(seen):
    for name in ("critic-0", "critic-1"):
        assert seen[name]["visible"] == ",".join(seen[name]["ray_devices"])
        assert len(seen[name]["ray_devices"]) == 1
    assert seen["reward-0"]["visible"] == ""
    assert seen["critic-0"]["visible"] != seen["critic-1"]["visible"]


def test_a_framework_that_picks_by_local_rank_finds_its_own_device_there(seen):
    actors = [seen["actor-0"], seen["actor-1"]]
    assert actors[0]["visible"] == actors[1]["visible"]
    visible = actors[0]["visible"].split(",")
    assert len(visible) == 2
    for actor in actors:
        assert actor["node"] == seen["critic-0"]["node"] == seen["critic-1"]["node"]
        assert (visible[actor["local"][0]],) == actor["ray_devices"] == actor["device_ids"]
    assert not {seen["critic-0"]["visible"], seen["critic-1"]["visible"]} & set(visible)


def test_a_process_can_be_left_alone_with_all_devices_of_its_node(seen):
    assert seen["rollout-0"]["visible"] is None
    assert len(seen["rollout-0"]["device_ids"]) == 1
    assert seen["critic-0"]["visible"] == seen["critic-0"]["device_ids"][0]


def test_what_the_user_says_himself_is_not_touched(seen):
    assert seen["reference-0"]["visible"] == "7"


@pytest.mark.usefixtures("ray_2_nodes_8_gpus")
def test_the_planner_sees_rays_labels_of_a_node():
    assert all(node.labels["ray.io/node-id"] == node.node_id for node in view_cluster().nodes)
