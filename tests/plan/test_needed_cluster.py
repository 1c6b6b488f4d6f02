"""The smallest cluster that a job fits: it always does, and its nodes have the labels the roles ask for."""

from __future__ import annotations

import pytest
from hypothesis import assume, event, given, settings
from plan_promises import broken_promises
from random_jobs import Size, jobs
from small_jobs import job, nodes_of, part, parted, role

from dlrl_core.errors import PlanError
from dlrl_core.plan import ClusterView, make_plan, needed_cluster
from dlrl_core.spec import JobSpec, problems_of

LABELLED = Size(labelled=0.4, spread=0.3)


@settings(max_examples=150, deadline=None)
@given(jobs(LABELLED))
def test_a_job_fits_the_cluster_that_it_needs(spec):
    assume(not problems_of(spec))
    try:
        needed = needed_cluster(spec)
    except PlanError:
        event("its own shape is too small")
        return
    assert len(needed.nodes) == spec.node_num + spec.spare_nodes
    assert len({tuple(node.free.items()) for node in needed.nodes}) == 1
    assert broken_promises(spec, needed, make_plan(spec, needed)) == []


def labels(spec: JobSpec, label: str) -> list[str | None]:
    return [node.labels.get(label) for node in needed_cluster(spec).nodes]


def at(value: str) -> dict[str, dict[str, tuple[str, ...]]]:
    return {"node_labels": {"zone": tuple(value)}}


def test_a_job_without_labels_needs_none():
    spec = job(role("actor", 3, 1), role("reward", resource={"GPU": 0.0}), node_num=3)
    free = {"CPU": 2.0, "GPU": 1.0}
    assert needed_cluster(spec) == ClusterView.described(node_num=3, resources=free)


def test_each_node_has_the_label_that_its_guests_ask_for():
    spec = job(role("actor", 1, **at("x")), role("rollout", 1, **at("y")), node_num=2)
    assert labels(spec, "zone") == ["x", "y"]
    plan = make_plan(spec, needed_cluster(spec))
    assert (nodes_of(plan, "actor"), nodes_of(plan, "rollout")) == (["node-0"], ["node-1"])


@pytest.mark.parametrize("wishes", [("xy", "yz"), ("yz", "xy"), ("xyz", "y"), ("y", "y")])
def test_roles_on_one_node_get_a_label_that_suits_all(wishes):
    roles = [role(name, **at(wish)) for name, wish in zip(("actor", "rollout"), wishes, strict=True)]
    assert labels(job(*roles, device_per_node=2), "zone") == ["y"]


def test_roles_of_which_each_two_but_not_all_three_suit_a_label_take_two_nodes():
    roles = [role("actor", **at("xy")), role("rollout", **at("yz")), role("critic", **at("xz"))]
    with pytest.raises(PlanError, match="it would fit with node_num=2"):
        needed_cluster(job(*roles, device_per_node=3))
    spec = job(*roles, node_num=2, device_per_node=3)
    assert broken_promises(spec, needed_cluster(spec), make_plan(spec, needed_cluster(spec))) == []


def test_a_packed_role_has_one_value_even_if_another_role_names_one():
    spec = job(role("actor", 2, 1, pack_into="zone"), role("rollout", 1, **at("x")), node_num=2, device_per_node=2)
    assert labels(spec, "zone") == ["x", "x"]


def test_a_spread_role_has_another_value_on_each_node():
    assert labels(job(role("actor", 3, spread_over="zone"), node_num=3), "zone") == ["0", "1", "2"]


def test_a_spread_role_is_spread_over_the_values_it_names():
    assert sorted(labels(job(role("actor", 4, 1, spread_over="zone", **at("xy")), node_num=4), "zone")) == list("xxyy")


def test_a_role_can_be_spread_over_what_another_is_packed_into():
    spec = job(
        role("actor", 2, spread_over="zone"), role("rollout", 2, pack_into="zone"), node_num=2, device_per_node=2
    )
    assert labels(spec, "zone") == ["0", "0"]


def test_a_spare_node_has_the_label_of_what_it_replaces():
    spec = job(role("actor", 2, 1, **at("x")), node_num=2, spare_nodes=1)
    assert labels(spec, "zone") == ["x", "x", "x"]


def test_one_spare_node_can_not_replace_nodes_of_two_labels():
    roles = (role("actor", 1, **at("x")), role("rollout", 1, **at("y")))
    with pytest.raises(PlanError, match="the job needs 1 spare node that can replace any of its nodes"):
        needed_cluster(job(*roles, node_num=2, spare_nodes=1))
    assert sorted(labels(job(*roles, node_num=2, spare_nodes=2), "zone")) == list("xxyy")


def test_parts_have_nodes_of_their_own_labels():
    rollout = parted("rollout", part("prefill", 2, **at("x")), part("decode", 2, **at("y")))
    assert labels(job(role("actor"), rollout, node_num=2, device_per_node=3), "zone") == ["x", "y"]


def test_an_elastic_job_needs_what_its_shape_has():
    spec = job(role("actor", 8, min_total=2), node_num=2, device_per_node=2)
    assert len(make_plan(spec, needed_cluster(spec)).workloads) == 4
