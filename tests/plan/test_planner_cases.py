"""Small jobs whose plan can be told in a sentence."""

from __future__ import annotations

from collections import Counter

import pytest
from plan_promises import broken_promises
from small_jobs import cluster, devices_of, job, nodes_of, part, parted, role

from dlrl_core.errors import PlanError, SchemaError
from dlrl_core.plan import ExecutionPlan, make_plan, needed_cluster
from dlrl_core.roles import RoleType


def test_the_seeds_example_fills_three_nodes_of_two_devices():
    roles = [role(name, 2, 1) for name in ("actor", "rollout", "reference")]
    plan = make_plan(spec := job(*roles, node_num=3, device_per_node=2), needed_cluster(spec))
    assert Counter(workload.node for workload in plan.workloads) == {0: 2, 1: 2, 2: 2}
    for name in plan.roles:
        assert len(set(nodes_of(plan, name.value))) == 2


def test_collocated_roles_share_a_device_rank_by_rank():
    spec = job(role("actor", 2), role("rollout", 2), device_per_node=2, with_collocation=(("actor", "rollout"),))
    plan = make_plan(spec, cluster(2))
    assert devices_of(plan, "actor") == devices_of(plan, "rollout") == [(0, (0,)), (0, (1,))]
    assert {workload.device_collocation for workload in plan.workloads} == {"ACTOR,ROLLOUT"}


def test_a_rank_has_its_block_of_the_larger_role_on_its_node():
    spec = job(
        role("actor", 2),
        role("rollout", 6),
        node_num=2,
        device_per_node=4,
        with_host_collocation=(("actor", "rollout"),),
    )
    plan = make_plan(spec, cluster(4, 4))
    assert nodes_of(plan, "actor") == ["node-0", "node-1"]
    assert nodes_of(plan, "rollout") == ["node-0"] * 3 + ["node-1"] * 3
    assert plan.device_count == 8


def test_separated_roles_meet_on_no_node():
    spec = job(
        role("actor", 3), role("rollout", 3), node_num=2, device_per_node=8, without_collocation=(("actor", "rollout"),)
    )
    plan = make_plan(spec, cluster(8, 8))
    assert set(nodes_of(plan, "actor")).isdisjoint(nodes_of(plan, "rollout"))


def test_a_role_that_is_separated_stands_for_all_its_parts():
    rollout = parted("rollout", part("prefill"), part("decode"))
    spec = job(role("actor"), rollout, node_num=2, device_per_node=2, without_collocation=(("actor", "rollout"),))
    plan = make_plan(spec, cluster(2, 2))
    assert set(nodes_of(plan, "actor")).isdisjoint(nodes_of(plan, "rollout"))


def test_a_workload_can_take_several_whole_devices():
    plan = make_plan(job(role("actor", 2, resource={"GPU": 2.0}), device_per_node=4), cluster(4))
    assert devices_of(plan, "actor") == [(0, (0, 1)), (0, (2, 3))]


def test_a_role_without_devices_holds_cpus_alone():
    spec = job(role("actor"), role("reward", 2, resource={"GPU": 0.0, "CPU": 0.5}))
    plan = make_plan(spec, needed_cluster(spec))
    rewards = [plan.bundles[workload.bundle] for workload in plan.of_role(RoleType.REWARD)]
    assert [bundle.devices for bundle in rewards] == [(), ()]
    assert [bundle.resources for bundle in rewards] == [{"CPU": 0.5}] * 2


def test_devices_can_be_cpus():
    spec = job(role("actor", 2), device_type="CPU", device_per_node=2)
    assert needed_cluster(spec).nodes[0].free == {"CPU": 2.0}
    assert devices_of(make_plan(spec, needed_cluster(spec)), "actor") == [(0, (0,)), (0, (1,))]


def test_a_node_that_fits_tightest_is_taken_first():
    assert nodes_of(make_plan(job(role("actor", 2), device_per_node=2), cluster(8, 2)), "actor") == ["node-1"] * 2


def test_ranks_run_through_the_parts_in_order_wherever_a_part_sits():
    """The second part shares devices with the actor, which comes first in the plan."""
    rollout = parted("rollout", part("prefill", 2), part("decode", 3))
    spec = job(role("actor", 3), rollout, device_per_node=8, with_collocation=(("actor", "rollout.decode"),))
    mine = make_plan(spec, cluster(8)).of_role(RoleType.ROLLOUT)
    assert [(one.rank, one.part, one.part_rank) for one in mine] == [
        (0, "prefill", 0), (1, "prefill", 1), (2, "decode", 0), (3, "decode", 1), (4, "decode", 2),
    ]  # fmt: skip
    assert [(one.world_size, one.local_rank, one.local_world_size) for one in mine] == [(5, i, 5) for i in range(5)]


def test_a_part_is_placed_as_its_role_says_unless_it_says_otherwise():
    parts = (part("prefill", 2), part("decode", 2, node_labels={"rack": ("b",)}))
    spec = job(parted("actor", *parts, node_labels={"rack": ("a",)}), node_num=2, device_per_node=4)
    plan = make_plan(spec, cluster(4, 4, racks="ab"))
    assert nodes_of(plan, "actor.prefill") == ["node-0"] * 2
    assert nodes_of(plan, "actor.decode") == ["node-1"] * 2


def test_a_packed_role_stays_in_one_rack_where_it_has_room():
    spec = job(role("actor", 4, pack_into="rack"), node_num=4, device_per_node=2)
    assert nodes_of(make_plan(spec, cluster(2, 1, 2, 2, racks="aabb")), "actor") == ["node-2"] * 2 + ["node-3"] * 2


@pytest.mark.parametrize(
    ("total", "per_node", "most"),
    [(6, None, 2), (5, None, 2), (4, None, 2), (3, None, 1), (4, 2, 2), (6, 2, 2)],
)
def test_a_spread_role_is_as_even_as_its_count_allows(total, per_node, most):
    spec = job(role("actor", total, per_node, spread_over="rack"), node_num=6, device_per_node=4)
    racks = dict(zip((f"node-{i}" for i in range(6)), "aabbcc", strict=True))
    plan = make_plan(spec, cluster(4, 4, 4, 4, 4, 4, racks="aabbcc"))
    assert max(Counter(racks[node] for node in nodes_of(plan, "actor")).values()) == most


def test_nodes_without_the_label_are_not_used_for_a_role_that_is_spread_over_it():
    spec = job(role("actor", 2, spread_over="zone"), node_num=2, device_per_node=2)
    with pytest.raises(PlanError, match="none of the cluster's 2 nodes has such labels"):
        make_plan(spec, cluster(2, 2, racks="ab"))


@pytest.mark.parametrize(
    ("gpus", "spare"),
    [((4, 2, 4), "node-2"), ((2, 4, 8), "node-2"), ((2, 2, 2), "node-2"), ((8, 2, 2), "node-0")],
)
def test_the_spare_node_can_replace_each_of_the_others(gpus, spare):
    """It is the job's shape that counts: two devices of each node are used, so a large one need not be held back."""
    spec = job(role("actor", 4, 2), node_num=2, device_per_node=2, spare_nodes=1)
    plan = make_plan(spec, cluster(*gpus))
    assert (plan.spares[0].replaces, plan.spares[0].resources) == ((0, 1), {"GPU": 2.0, "CPU": 2.0})
    assert broken_promises(spec, cluster(*gpus), plan) == []
    assert plan.spares[0].node_id == spare


def test_a_spare_node_is_in_the_rack_of_a_packed_role():
    spec = job(role("actor", 2, 1, pack_into="rack"), node_num=2, device_per_node=1, spare_nodes=1)
    plan = make_plan(spec, cluster(1, 1, 1, 1, 1, racks="aabbb"))
    assert {node.node_id for node in (*plan.nodes, *plan.spares)} == {"node-2", "node-3", "node-4"}


def test_two_spare_nodes_together_replace_what_none_can_alone():
    roles = [role("actor", 1, 1, node_labels={"rack": ("a",)}), role("rollout", 1, 1, node_labels={"rack": ("b",)})]
    plan = make_plan(job(*roles, node_num=2, spare_nodes=2), cluster(1, 1, 1, 1, 1, racks="aaabb"))
    assert sorted(spare.replaces for spare in plan.spares) == [(0,), (1,)]


@pytest.mark.parametrize(("gpus", "actors"), [((8, 8), 4), ((4, 4), 4), ((8, 2), 4), ((4, 2), 2), ((6,), 2)])
def test_an_elastic_role_takes_what_the_others_leave_it(gpus, actors):
    spec = job(role("actor", 4, 2, min_total=2), role("rollout", 4), node_num=2, device_per_node=8)
    plan = make_plan(spec, cluster(*gpus))
    assert (len(plan.of_role(RoleType.ACTOR)), len(plan.of_role(RoleType.ROLLOUT))) == (actors, 4)


def test_elastic_roles_shrink_in_proportion():
    spec = job(role("actor", 8, min_total=2), role("rollout", 16, min_total=4), device_per_node=12)
    plan = make_plan(spec, cluster(12))
    assert (len(plan.of_role(RoleType.ACTOR)), len(plan.of_role(RoleType.ROLLOUT))) == (4, 8)


def test_an_elastic_role_that_is_spread_may_fit_with_more_where_it_does_not_with_fewer():
    """Of three racks one is taken: 3 would have to be in all three, 4 may be in two."""
    roles = (
        role("actor", 2, 2, node_labels={"rack": ("a",)}),
        role("rollout", 5, min_total=3, spread_over="rack"),
    )
    spec = job(*roles, node_num=3, device_per_node=2, without_collocation=(("actor", "rollout"),))
    assert len(make_plan(spec, cluster(2, 2, 2, racks="abc")).of_role(RoleType.ROLLOUT)) == 4


def test_a_smaller_node_num_is_an_upper_bound_not_a_wish():
    spec = job(role("actor", 2, 2), node_num=3, device_per_node=2)
    assert len(make_plan(spec, cluster(2, 2, 2)).nodes) == 1


def test_a_large_cluster_is_filled_with_care():
    """Rollouts on as few of the nodes of 4 GPUs as possible: there they leave nothing for an actor."""
    gpus = (7,) * 179 + (5,) * 168 + (4,) * 153
    roles = (role("actor", 440, 1), role("rollout", 806, 2, resource={"GPU": 2.0}))
    plan = make_plan(job(*roles, node_num=500, device_per_node=8), cluster(*gpus))
    assert len(plan.workloads) == 440 + 806


@pytest.mark.parametrize("text", ['{"plan_schema": 99}', "{}", "x"])
def test_a_plan_that_can_not_be_read_is_refused(text):
    with pytest.raises(SchemaError):
        ExecutionPlan.from_json(text)
