"""Where workloads really sit, asked from inside them, on two nodes and on three of a cluster of five."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from checks import connected

from dlrl_core import RLJobBuilder
from dlrl_core.plan import ClusterView, NodeView
from dlrl_local_ray.local_cluster import LocalCluster

HERE = "sample_jobs.places"


@pytest.fixture(scope="module")
def cluster_5_nodes_14_gpus() -> Iterator[str]:
    """Three nodes of 4 and two of 1 logical GPU, in two racks; the last one has two logical NPUs too."""
    kinds = [(4, "r1", "H100"), (1, "r1", "L4"), (4, "r2", "H100"), (1, "r2", "L4"), (4, "r2", "H100")]
    nodes = tuple(
        NodeView(node_id=str(index), free={"CPU": 8, "GPU": gpus}, labels={"rack": rack, "kind": kind})
        for index, (gpus, rack, kind) in enumerate(kinds)
    )
    nodes = (*nodes[:-1], replace(nodes[-1], free={**nodes[-1].free, "NPU": 2}))
    cluster = LocalCluster()
    try:
        yield cluster.add_nodes(ClusterView(nodes=nodes))
    finally:
        cluster.stop()


@pytest.fixture
def ray_5_nodes_14_gpus(cluster_5_nodes_14_gpus: str) -> Iterator[None]:
    with connected(cluster_5_nodes_14_gpus):
        yield


def builder(node_num: int, device_per_node: int, **config) -> RLJobBuilder:
    return RLJobBuilder().node_num(node_num).device_per_node(device_per_node).config(config).trainer(HERE, "Host")


def guests(job: RLJobBuilder) -> dict[str, dict]:
    return by_name(job.build().submit("places").value)


def by_name(value: dict) -> dict[str, dict]:
    return {one["name"]: one for one in value["last"]}


def device(guest: dict) -> tuple[str, tuple[str, ...]]:
    """The real device: its node, and its id there."""
    assert guest["ray_devices"] == guest["device_ids"]
    return guest["node"], guest["ray_devices"]


def thirds() -> RLJobBuilder:
    """Three roles of 3 nodes x 1 rank on the same devices."""
    job = builder(3, 1)
    for role in ("actor", "critic", "reference"):
        job = getattr(job, role)(HERE, "Guest").total(3).per_node(1).resource({"GPU": "1/3", "CPU": 0.5})
    return job.with_collocation_all()


def on_one_host() -> RLJobBuilder:
    """Actors of 3 nodes x 2 ranks, each node with a critic."""
    job = builder(3, 3).actor(HERE, "Guest").total(6).per_node(2).critic(HERE, "Guest").total(3).per_node(1)
    return job.with_host_collocation("actor", "critic")


def apart() -> RLJobBuilder:
    job = builder(3, 2).actor(HERE, "Guest").total(2).rollout(HERE, "Guest").total(1).reward(HERE, "Guest")
    return job.without_collocation("actor", "rollout", "reward")


def strategies() -> RLJobBuilder:
    """Actor and reference share devices, the critic their nodes, the rollout none; its parts have their own places."""
    return (
        builder(4, 4)
        .actor(HERE, "Guest").total(2).node_labels({"kind": "H100"})
        .reference(HERE, "Guest").total(2)
        .critic(HERE, "Guest").total(2)
        .rollout(HERE, "Guest")
            .part("prefill").total(1).node_labels({"kind": "H100"}).resource({"GPU": 2})
            .part("decode").total(2).per_node(1).node_labels({"kind": "L4"}).spread_over("rack")
        .reward(HERE, "Guest").total(2).resource({"GPU": 0, "CPU": 0.5})
        .with_collocation("actor", "reference")
        .with_host_collocation("actor", "critic")
        .without_collocation("actor", "rollout")
    )  # fmt: skip


@pytest.fixture(scope="module")
def values(cluster_5_nodes_14_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What the trainers of four jobs returned; two of them were there at once."""
    found = {}
    with pytest.MonkeyPatch.context() as patch, connected(cluster_5_nodes_14_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        for jobs in ((on_one_host, apart), (thirds,), (strategies,)):
            handles = {job.__name__: job().build().submit(job.__name__, blocking=False) for job in jobs}
            found.update({name: handle.wait(timeout=90).value for name, handle in handles.items()})
    return found


def test_a_role_of_3_nodes_x_2_ranks_fills_each_node_in_rank_order(values):
    seen = by_name(values["on_one_host"])
    nodes = [seen[f"actor-{rank}"]["node"] for rank in range(6)]
    assert nodes[0::2] == nodes[1::2]
    assert len(set(nodes)) == 3
    assert [seen[f"actor-{rank}"]["local"] for rank in range(6)] == [(0, 2), (1, 2)] * 3
    assert len({device(seen[f"actor-{rank}"]) for rank in range(6)}) == 6


def test_three_roles_share_one_device_by_thirds_on_3_nodes(values):
    seen = by_name(values["thirds"])
    for rank in range(3):
        assert len({device(seen[f"{role}-{rank}"]) for role in ("actor", "critic", "reference")}) == 1
    assert {guest["collocation"] for guest in seen.values()} == {"ACTOR,REFERENCE,CRITIC"}
    assert len({device(guest) for guest in seen.values()}) == 3
    assert len({guest["node"] for guest in seen.values()}) == 3


def test_host_collocation_shares_nodes_but_not_devices_on_3_nodes(values):
    seen = by_name(values["on_one_host"])
    assert len({guest["node"] for guest in seen.values()}) == 3
    assert {seen[f"critic-{rank}"]["node"] for rank in range(3)} == {seen[f"actor-{rank}"]["node"] for rank in range(6)}
    assert len({device(guest) for guest in seen.values()}) == 9


def test_no_collocation_keeps_roles_on_different_nodes_on_3_nodes(values):
    seen = by_name(values["apart"])
    assert seen["actor-0"]["node"] == seen["actor-1"]["node"]
    assert len({seen[name]["node"] for name in ("actor-0", "rollout-0", "reward-0")}) == 3


@pytest.mark.usefixtures("ray_5_nodes_14_gpus")
def test_all_three_strategies_with_parts_and_labels_in_one_job_on_5_nodes(values):
    plan = strategies().build().plan()
    assert [len(plan.of_role(role)) for role in plan.roles] == [2, 2, 2, 3, 2]
    seen = by_name(values["strategies"])
    for rank in range(2):
        assert device(seen[f"actor-{rank}"]) == device(seen[f"reference-{rank}"])
        assert seen[f"actor-{rank}"]["collocation"] == "ACTOR,REFERENCE"
        assert seen[f"critic-{rank}"]["node"] == seen[f"actor-{rank}"]["node"]
        assert device(seen[f"critic-{rank}"]) != device(seen[f"actor-{rank}"])
        assert seen[f"reward-{rank}"]["device_ids"] == ()
    trainers = {seen[name]["node"] for name in ("actor-0", "actor-1", "critic-0", "critic-1")}
    assert not trainers & {seen[f"rollout-{rank}"]["node"] for rank in range(3)}
    assert [seen[f"rollout-{rank}"]["part"] for rank in range(3)] == [
        ("prefill", 0, 1),
        ("decode", 0, 2),
        ("decode", 1, 2),
    ]
    assert len(seen["rollout-0"]["device_ids"]) == 2
    labels = labels_of_nodes()
    assert labels[seen["rollout-0"]["node"]]["kind"] == "H100"
    assert {labels[seen[f"rollout-{rank}"]["node"]]["kind"] for rank in (1, 2)} == {"L4"}
    assert {labels[seen[f"rollout-{rank}"]["node"]]["rack"] for rank in (1, 2)} == {"r1", "r2"}
    own = [device(seen[name]) for name in seen if seen[name]["device_ids"] and not name.startswith("reference")]
    assert len(own) == len(set(own))


def test_a_part_of_a_role_is_called_as_a_group_of_its_own(values):
    assert values["strategies"]["parts"] == {"prefill": ["rollout-0"], "decode": ["rollout-1", "rollout-2"]}


@pytest.mark.usefixtures("ray_5_nodes_14_gpus")
def test_a_packed_role_stays_in_one_rack_and_a_spare_node_is_held_back(tmp_path):
    """Twelve devices of H100 nodes: eight in rack r2 for the job, and the node in r1 can't be its spare."""
    from dlrl_core.errors import PlanError

    job = builder(2, 2).spare_nodes(1).actor(HERE, "Guest").total(3).node_labels({"kind": "H100"}).pack_into("rack")
    with pytest.raises(PlanError, match="the job needs 1 spare node that can replace any of its nodes"):
        job.build().submit("places")

    until = tmp_path / "end"
    job = builder(1, 2, until=str(until)).spare_nodes(1).actor(HERE, "Guest").total(2).node_labels({"rack": "r2"})
    handle = job.build().submit("spare", blocking=False)
    spare = handle.status().view["plan"]["spares"][0]
    assert labels_of_nodes()[spare["node_id"]]["rack"] == "r2"
    held = free_of(spare["node_id"])
    until.touch()
    handle.wait()
    assert held == {"GPU": 2.0, "CPU": 6.0}


@pytest.mark.usefixtures("ray_2_nodes_8_gpus")
def test_a_workload_can_hold_several_whole_devices_and_an_elastic_role_takes_what_is_left():
    job = builder(2, 4).actor(HERE, "Guest").total(2).per_node(1).resource({"GPU": 3})
    seen = guests(job.rollout(HERE, "Guest").total(20).min_total(1))
    assert sorted(seen) == ["actor-0", "actor-1", "rollout-0", "rollout-1"]
    for rank in range(2):
        actor, rollout = device(seen[f"actor-{rank}"])[1], device(seen[f"rollout-{rank}"])[1]
        assert (len(actor), len(rollout)) == (3, 1)
        assert seen[f"rollout-{rank}"]["local"] == (0, 1)
    nodes = {guest["node"] for guest in seen.values()}
    assert len(nodes) == 2
    for node in nodes:
        ids = [one for guest in seen.values() if guest["node"] == node for one in guest["device_ids"]]
        assert sorted(ids) == ["0", "1", "2", "3"]


@pytest.mark.usefixtures("ray_5_nodes_14_gpus")
def test_npus_are_devices_too():
    """Ray numbers them, and the variable is theirs."""
    config = {"device_type": "NPU", "variable": "ASCEND_RT_VISIBLE_DEVICES"}
    job = RLJobBuilder().device_type("NPU").device_per_node(2).config(config).trainer(HERE, "Host")
    seen = guests(
        job.actor(HERE, "Guest").total(2).rollout(HERE, "Guest").total(2).with_collocation("actor", "rollout")
    )
    for rank in range(2):
        assert seen[f"actor-{rank}"]["ray_devices"] == seen[f"rollout-{rank}"]["ray_devices"]
        assert seen[f"actor-{rank}"]["visible"] == seen[f"actor-{rank}"]["ray_devices"][0]
    assert {seen[f"actor-{rank}"]["visible"] for rank in range(2)} == {"0", "1"}


def labels_of_nodes() -> dict[str, dict[str, str]]:
    import ray

    return {node["NodeID"]: node["Labels"] for node in ray.nodes()}


def free_of(node_id: str) -> dict[str, float]:
    """What nobody holds on the node, as soon as the cluster knows of all that is held."""
    import ray
    from checks import wait_until

    def free() -> dict[str, float]:
        return ray._private.state.available_resources_per_node()[node_id]

    wait_until(lambda: free().get("GPU", 0) < 4, "the spare is held back")
    return {name: amount for name, amount in free().items() if name in ("GPU", "CPU")}
