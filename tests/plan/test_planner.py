"""The planner, without Ray: what it promises for any job and any cluster."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlrl_core.errors import PlanError, SchemaError
from dlrl_core.plan import ClusterView, ExecutionPlan, make_plan, needed_cluster
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec, problems_of

CLASS = ClassRef(module="m", class_name="C")


def job(*roles: RoleSpec, **more) -> JobSpec:
    return JobSpec(trainer=CLASS, roles=roles, **more)


def role(role: RoleType, total: int = 1, per_node: int | None = None, **resource: float) -> RoleSpec:
    return RoleSpec(role=role, cls=CLASS, total=total, per_node=per_node, resource=resource)


@st.composite
def jobs(draw) -> JobSpec:
    names = draw(st.lists(st.sampled_from(list(RoleType)), min_size=1, max_size=5, unique=True))
    node_num = draw(st.integers(1, 4))
    shares = draw(st.booleans()) and len(names) >= 2
    counts = {}
    for name in names:
        per_node = draw(st.none() | st.integers(1, 3))
        total = draw(st.integers(1, 6)) if per_node is None else per_node * draw(st.integers(1, node_num))
        counts[name] = (total, per_node)
    if shares:
        counts[names[1]] = counts[names[0]]
    return job(
        *[role(name, *counts[name]) for name in names],
        node_num=node_num,
        device_per_node=draw(st.integers(1, 8)),
        collocations=((names[0], names[1]),) if shares else (),
    )


@settings(max_examples=200, deadline=None)
@given(jobs())
def test_a_plan_never_overcommits_and_honours_collocation(spec):
    assume([problem for problem in problems_of(spec) if "no role 'actor'" not in problem] == [])
    try:
        cluster = needed_cluster(spec)
    except PlanError:
        assume(False)
    plan = make_plan(spec, cluster)
    assert plan == make_plan(spec, cluster)
    assert ExecutionPlan.from_json(plan.to_json()) == plan
    _assert_complete(plan, spec)
    _assert_no_overcommit(plan, cluster)
    _assert_per_node(plan, spec)
    _assert_devices(plan, spec)


def _assert_complete(plan, spec):
    for asked in spec.roles:
        assert [workload.rank for workload in plan.of_role(asked.role)] == list(range(asked.total))
        for workload in plan.of_role(asked.role):
            assert workload.world_size == asked.total
            peers = [peer for peer in plan.of_role(asked.role) if peer.node == workload.node]
            assert [peer.local_rank for peer in peers] == list(range(len(peers)))
            assert workload.local_world_size == len(peers)


def _assert_no_overcommit(plan, cluster):
    free = {node.node_id: node.free for node in cluster.nodes}
    for index, node in enumerate(plan.nodes):
        used: dict[str, float] = {}
        for bundle in plan.bundles:
            if bundle.node == index:
                for name, amount in bundle.resources.items():
                    used[name] = used.get(name, 0) + amount
        assert all(amount <= free[node.node_id][name] for name, amount in used.items())
    for number, bundle in enumerate(plan.bundles):
        guests = [workload for workload in plan.workloads if workload.bundle == number]
        for name, amount in bundle.resources.items():
            assert sum(guest.resources.get(name, 0) for guest in guests) <= amount + 1e-9


def _assert_per_node(plan, spec):
    for asked in spec.roles:
        if asked.per_node is not None:
            counts = [sum(w.node == node for w in plan.of_role(asked.role)) for node in range(len(plan.nodes))]
            assert set(counts) <= {0, asked.per_node}


def _assert_devices(plan, spec):
    places = [(bundle.node, bundle.device) for bundle in plan.bundles if bundle.device is not None]
    assert len(places) == len(set(places))
    for workload in plan.workloads:
        sharing = {other.role for other in plan.workloads if other.bundle == workload.bundle}
        assert sharing == set(spec.collocation_of(workload.role) or [workload.role])
        assert {other.rank for other in plan.workloads if other.bundle == workload.bundle} == {workload.rank}


def test_the_seeds_example_fills_three_nodes_of_two_devices():
    roles = [role(name, 2, 1) for name in (RoleType.ACTOR, RoleType.ROLLOUT, RoleType.REFERENCE)]
    plan = make_plan(spec := job(*roles, node_num=3, device_per_node=2), needed_cluster(spec))
    assert sorted(len([w for w in plan.workloads if w.node == node]) for node in range(3)) == [2, 2, 2]
    for name in plan.roles:
        assert len({workload.node for workload in plan.of_role(name)}) == 2


def test_a_role_without_devices_holds_cpus_alone():
    plan = make_plan(
        spec := job(role(RoleType.ACTOR), role(RoleType.REWARD, 2, GPU=0.0, CPU=0.5)), needed_cluster(spec)
    )
    assert [plan.bundles[w.bundle].device for w in plan.of_role(RoleType.REWARD)] == [None, None]
    assert [plan.bundles[w.bundle].resources for w in plan.of_role(RoleType.REWARD)] == [{"CPU": 0.5}] * 2


def test_devices_can_be_cpus():
    spec = job(role(RoleType.ACTOR, 2), device_type="CPU", device_per_node=2)
    assert needed_cluster(spec).nodes[0].free == {"CPU": 2.0}
    assert [bundle.device for bundle in make_plan(spec, needed_cluster(spec)).bundles] == [0, 1]


def test_a_node_that_fits_tightest_is_taken_first():
    cluster = ClusterView(
        nodes=(
            *ClusterView.described(node_num=1, resources={"CPU": 8, "GPU": 8}).nodes,
            *ClusterView.described(node_num=2, resources={"CPU": 8, "GPU": 2}).nodes[1:],
        )
    )
    assert make_plan(job(role(RoleType.ACTOR, 2), device_per_node=2), cluster).nodes[0].node_id == "node-1"


def test_a_plan_prints_who_sits_where():
    roles = [role(RoleType.ACTOR, 2), role(RoleType.ROLLOUT, 2)]
    spec = job(*roles, device_per_node=2, collocations=((RoleType.ACTOR, RoleType.ROLLOUT),))
    assert str(make_plan(spec, needed_cluster(spec))) == (
        "4 workloads on 1 nodes, 2 devices (GPU)\n"
        "node 0 (node-0)\n"
        "  GPU 0: actor-0 50%, rollout-0 50%\n"
        "  GPU 1: actor-1 50%, rollout-1 50%"
    )


@pytest.mark.parametrize("text", ['{"plan_schema": 99}', "{}", "x"])
def test_a_plan_that_can_not_be_read_is_refused(text):
    with pytest.raises(SchemaError):
        ExecutionPlan.from_json(text)
