"""A job that does not fit: who needs what, what there is, and changes that do fit."""

from __future__ import annotations

import pickle
from collections import Counter
from random import Random

import pytest
from hypothesis import assume, event, given, settings
from proposed_changes import carried_out, proposals_of
from random_jobs import MEDIUM, clusters, jobs, random_cluster, random_job
from small_jobs import cluster, job, part, parted, role

from dlrl_core.errors import PlanError
from dlrl_core.plan import ClusterView, make_plan, needed_cluster
from dlrl_core.spec import JobSpec, problems_of


def refusal(spec: JobSpec, view: ClusterView | None = None) -> str:
    with pytest.raises(PlanError) as raised:
        make_plan(spec, view or needed_cluster(spec))
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    return str(raised.value)


OWN_SHAPE = {
    "too few devices": (
        job(role("actor", 3), device_per_node=2),
        "role 'actor' needs 3 x 1 GPU; the job has node_num=1 x device_per_node=2; "
        "it would fit with node_num=2, or with device_per_node=3",
    ),
    "too few on each node": (
        job(role("actor", 4, 2), node_num=2),
        "role 'actor' needs 2 nodes with 2 GPU free each; the job has node_num=2 x device_per_node=1; "
        "it would fit with device_per_node=2",
    ),
    "too few together": (
        job(role("actor", 4), role("rollout", 2, min_total=1), device_per_node=4),
        "the roles need at least 5 GPU in all (role 'actor' 4, role 'rollout' 1); "
        "the job has node_num=1 x device_per_node=4; it would fit with node_num=2, or with device_per_node=5",
    ),
    "a host group": (
        job(role("actor", 2), role("rollout", 4), device_per_node=4, with_host_collocation=(("actor", "rollout"),)),
        "roles 'actor' + 'rollout' need 2 x 3 GPU; the job has node_num=1 x device_per_node=4; "
        "it would fit with node_num=2, or with device_per_node=6",
    ),
    "a separation": (
        job(role("actor"), role("reward", 2, resource={"GPU": 0.0}), without_collocation=(("actor", "reward"),)),
        "role 'reward' needs 2 x 1 CPU, on no node of 'actor', beside 'actor'; "
        "the job has node_num=1 x device_per_node=1; "
        "it would fit with node_num=2, or with no separation of 'actor' and 'reward'",
    ),
    "two labels": (
        job(role("actor", node_labels={"z": ("x",)}), role("rollout", node_labels={"z": ("y",)}), device_per_node=2),
        "role 'rollout' needs 1 GPU on one node, with z=y, beside 'actor'; the job has node_num=1 x device_per_node=2; "
        "it would fit with node_num=2, or with no node_labels for 'rollout'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OWN_SHAPE)
def test_a_job_too_large_for_its_own_shape_says_so(case):
    spec, message = OWN_SHAPE[case]
    assert refusal(spec) == message


ON_A_CLUSTER = {
    "too few devices": (
        job(role("actor", 8), device_per_node=8), cluster(6),
        "role 'actor' needs 8 x (1 GPU, 1 CPU); the cluster has 6 GPU and 64 CPU free on 1 node, and the job may use "
        "node_num=1 x device_per_node=8; it would fit with total=6 for 'actor', "
        "or with node_num=2 and 1 more node like node-0",
    ),
    "too few CPUs": (
        job(role("actor", 8), device_per_node=8), cluster(8, cpus=4),
        "role 'actor' needs 8 x (1 GPU, 1 CPU); the cluster has 8 GPU and 4 CPU free on 1 node, and the job may use "
        "node_num=1 x device_per_node=8; it would fit with total=4 for 'actor', or with CPU=0.5 for 'actor'",
    ),
    "too few nodes": (
        job(role("actor", 4, 2), node_num=2, device_per_node=2), cluster(8),
        "role 'actor' needs 2 nodes with 2 GPU and 2 CPU free each; the cluster has 8 GPU and 64 CPU free on 1 node, "
        "and the job may use node_num=2 x device_per_node=2; it would fit with total=2 for 'actor', "
        "or with 1 more node like node-0",
    ),
    "on too many nodes": (
        job(role("actor", 4), device_per_node=4), cluster(3, 3),
        "role 'actor' needs 4 x (1 GPU, 1 CPU); the cluster has 6 GPU and 128 CPU free on 2 nodes, at most 3 GPU on "
        "one, and the job may use node_num=1 x device_per_node=4; it would fit with node_num=2, "
        "or with total=3 for 'actor'",
    ),
    "too few together": (
        job(role("actor", 4), role("rollout", 4), device_per_node=8), cluster(6),
        "the roles need 8 GPU in all (role 'actor' 4, role 'rollout' 4); the cluster has 6 GPU and 64 CPU free on "
        "1 node, and the job may use node_num=1 x device_per_node=8; it would fit with total=2 for 'rollout', "
        "or with node_num=2 and 1 more node like node-0",
    ),
    "no room beside others": (
        job(role("actor", 2, 1), role("rollout", resource={"GPU": 2.0}), node_num=2, device_per_node=2), cluster(2, 2),
        "role 'rollout' needs 2 GPU and 1 CPU on one node, beside 'actor'; the cluster has 4 GPU and 128 CPU free on "
        "2 nodes, at most 2 GPU on one, and the job may use node_num=2 x device_per_node=2; "
        "it would fit with node_num=3 and 1 more node like node-0",
    ),
    "labels of few nodes": (
        job(role("actor", 4, node_labels={"rack": ("a", "b")}), node_num=3, device_per_node=2), cluster(1, 1, 4, racks="abc"),
        "role 'actor' needs 4 x (1 GPU, 1 CPU), with rack=a|b; the cluster has 2 GPU and 128 CPU free on 2 of 3 nodes, "
        "at most 1 GPU on one, and the job may use node_num=3 x device_per_node=2; "
        "it would fit with total=2 for 'actor', or with no node_labels for 'actor'",
    ),
    "labels of no node": (
        job(role("actor", 3, node_labels={"rack": ("x",)})), cluster(8, racks="a"),
        "role 'actor' needs 3 x (1 GPU, 1 CPU), with rack=x; none of the cluster's 1 node has such labels; "
        "add nodes with these labels",
    ),
    "packed": (
        job(role("actor", 3, pack_into="rack"), node_num=3, device_per_node=8), cluster(2, 2, racks="ab"),
        "role 'actor' needs 3 x (1 GPU, 1 CPU), all in one 'rack'; the cluster has 4 GPU and 128 CPU free on 2 nodes, "
        "at most 2 GPU on one, and the job may use node_num=3 x device_per_node=8; "
        "it would fit with total=2 for 'actor', or with no pack_into for 'actor'",
    ),
    "spread": (
        job(role("actor", 4, spread_over="rack"), node_num=2, device_per_node=8), cluster(3, 1, racks="ab"),
        "role 'actor' needs 4 x (1 GPU, 1 CPU), spread over 'rack'; the cluster has 4 GPU and 128 CPU free on 2 nodes, "
        "at most 3 GPU on one, and the job may use node_num=2 x device_per_node=8; "
        "it would fit with total=3 for 'actor', or with no spread_over for 'actor'",
    ),
    "spare nodes": (
        job(role("actor", 2, 1), node_num=2, spare_nodes=1), cluster(1, 1),
        "role 'actor' needs 2 nodes with 1 GPU and 1 CPU free each; the cluster has 2 GPU and 128 CPU free on 2 nodes, "
        "at most 1 GPU on one, and the job may use node_num=2 x device_per_node=1 besides 1 spare node; "
        "it would fit with spare_nodes=0, or with total=1 for 'actor'",
    ),
    "spare nodes that are too small": (
        job(role("actor", 2), device_per_node=2, spare_nodes=1), cluster(2, 1),
        "the job needs 1 spare node that can replace any of its nodes; those of the cluster's 2 nodes that "
        "the job does not use are too small for it or lack its labels; it would fit with spare_nodes=0, "
        "or with 1 more node like node-0",
    ),
    "more spare nodes than nodes": (
        job(role("actor"), spare_nodes=2), cluster(1, 1),
        "the job needs 2 spare nodes that can replace any of its nodes; the cluster has 2 nodes, of which the "
        "job needs 1 itself; it would fit with spare_nodes=1, or with 1 more node like node-0",
    ),
    "no nodes": (
        job(role("actor")), ClusterView(nodes=()),
        "role 'actor' needs 1 GPU and 1 CPU on one node; the cluster has no nodes; "
        "lower the counts or resources of the roles, or add nodes with more GPU",
    ),
    "an elastic part": (
        job(parted("actor", part("a", 8, min_total=4)), node_num=1, device_per_node=8), cluster(2),
        "part 'actor.a' needs at least 4 x (1 GPU, 1 CPU); the cluster has 2 GPU and 64 CPU free on 1 node, and the "
        "job may use node_num=1 x device_per_node=8; it would fit with min_total=2 for 'actor.a', "
        "or with node_num=2 and 1 more node like node-0",
    ),
    "another resource": (
        job(role("actor", 2, resource={"disk": 1.0}), device_per_node=2), cluster(2, 2),
        "role 'actor' needs 2 x (1 GPU, 1 CPU, 1 disk); the cluster has 4 GPU and 128 CPU and 0 disk free on 2 nodes, "
        "at most 0 disk on one, and the job may use node_num=1 x device_per_node=2; "
        "lower the counts or resources of the roles, or add nodes with more disk",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_A_CLUSTER)
def test_a_job_too_large_for_a_cluster_says_what_is_missing(case):
    spec, view, message = ON_A_CLUSTER[case]
    assert refusal(spec, view) == message


@settings(max_examples=150, deadline=None)
@given(jobs(), clusters())
def test_every_change_that_is_proposed_does_fit(spec, view):
    assume(not problems_of(spec))
    try:
        make_plan(spec, view)
    except PlanError as error:
        proposals = proposals_of(str(error))
        event(f"{len(proposals)} proposals")
        assert_all_fit(proposals, spec, view)


@settings(max_examples=75, deadline=None)
@given(jobs())
def test_every_change_of_its_own_shape_that_is_proposed_does_fit(spec):
    assume(not problems_of(spec))
    try:
        needed_cluster(spec)
    except PlanError as error:
        for proposal in proposals_of(str(error)):
            changed, _ = carried_out(proposal, spec, ClusterView(nodes=()))
            make_plan(changed, needed_cluster(changed))


def test_most_refusals_propose_a_change():
    counts: Counter[bool] = Counter()
    for seed in range(200):
        random = Random(seed)
        spec, view = random_job(random, MEDIUM), random_cluster(random, MEDIUM)
        if not problems_of(spec):
            try:
                make_plan(spec, view)
            except PlanError as error:
                counts[bool(proposals_of(str(error)))] += 1
    assert counts[True] > counts[False] > 0


def assert_all_fit(proposals: list[str], spec: JobSpec, view: ClusterView) -> None:
    for proposal in proposals:
        changed, on = carried_out(proposal, spec, view)
        assert problems_of(changed) == []
        make_plan(changed, on)
