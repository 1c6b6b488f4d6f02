"""A plan takes time in proportion to the job, and a refusal takes no longer than a person waits for an answer."""

from __future__ import annotations

import time

import pytest
from small_jobs import job, role

from dlrl_core.errors import PlanError
from dlrl_core.plan import ClusterView, NodeView, make_plan
from dlrl_core.spec import JobSpec

REFUSAL_LIMIT_S = 2.0


def cluster(count: int, gpus: tuple[int, ...] = (8,), cpus: tuple[int, ...] = (64,)) -> ClusterView:
    """Nodes in five racks; what is free is repeated in turn."""
    return ClusterView(
        nodes=tuple(
            NodeView(
                node_id=f"node-{i}",
                free={"GPU": gpus[i % len(gpus)], "CPU": cpus[i % len(cpus)]},
                labels={"rack": f"r{i % 5}"},
            )
            for i in range(count)
        )
    )


def large_job(nodes: int) -> JobSpec:
    return job(
        role("actor", nodes * 2),
        role("rollout", nodes * 2),
        role("critic", nodes * 2, spread_over="rack"),
        role("reference", nodes * 2, 2),
        role("reward", nodes, resource={"GPU": 0.0}),
        node_num=nodes,
        device_per_node=8,
        with_collocation=(("actor", "rollout"),),
        spare_nodes=nodes // 100,
    )


def seconds_for(nodes: int) -> float:
    spec, view = large_job(nodes), cluster(nodes + nodes // 100)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        assert len(make_plan(spec, view).workloads) == nodes * 9
        best = min(best, time.process_time() - start)
    return best


def test_a_job_eight_times_as_large_takes_about_eight_times_as_long():
    """Quadratic would be 64 times; the bound leaves room for a busy machine."""
    assert seconds_for(4_000) < 36 * seconds_for(500)


def two_gpus(name: str, total: int, **more):
    return role(name, total, resource={"GPU": 2.0}, **more)


def odd_nodes(count: int, **more) -> JobSpec:
    """Two roles of 2 GPUs each on nodes of 7: there are enough GPUs, but one of each node is left over."""
    return job(
        two_gpus("actor", count * 33 // 20),
        two_gpus("rollout", count * 33 // 20),
        node_num=count,
        device_per_node=8,
        **more,
    )


HARD_TO_REFUSE = {
    "one too many": lambda n: (job(role("actor", 8 * n + 1), node_num=n, device_per_node=8), cluster(n)),
    "pairs on odd nodes": lambda n: (odd_nodes(n), cluster(n, (7,))),
    "pairs on odd nodes that all differ": lambda n: (odd_nodes(n), cluster(n, (7,), tuple(range(16, 53)))),
    "separated and spread": lambda n: (
        job(
            role("actor", n, spread_over="rack"),
            role("rollout", n, resource={"GPU": 3.0}, spread_over="rack"),
            role("critic", n),
            node_num=n,
            device_per_node=8,
            without_collocation=(("actor", "rollout"), ("critic", "rollout")),
        ),
        cluster(n, (3, 4)),
    ),
    "elastic, spread, with spare nodes": lambda n: (
        job(
            two_gpus("actor", 2 * n, min_total=n, spread_over="rack"),
            role("rollout", 2 * n, resource={"GPU": 3.0}, min_total=n),
            node_num=n,
            device_per_node=8,
            spare_nodes=1,
        ),
        cluster(n, (4, 7)),
    ),
    "packed": lambda n: (
        job(
            two_gpus("actor", n // 2 + 1, pack_into="rack"),
            two_gpus("rollout", n // 2 + 1, pack_into="rack"),
            role("critic", n // 2 + 1, resource={"GPU": 3.0}, pack_into="rack"),
            node_num=n,
            device_per_node=8,
        ),
        cluster(n, (4, 5, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("nodes", [8, 40, 300, 1_000])
@pytest.mark.parametrize("case", HARD_TO_REFUSE)
def test_a_refusal_comes_in_good_time(case, nodes):
    spec, view = HARD_TO_REFUSE[case](nodes)
    start = time.process_time()
    with pytest.raises(PlanError):
        make_plan(spec, view)
    assert time.process_time() - start < REFUSAL_LIMIT_S


def test_a_search_that_was_given_up_is_admitted():
    spec, view = HARD_TO_REFUSE["pairs on odd nodes"](1_000)
    with pytest.raises(PlanError, match="^no place was found, though not all ways were tried: role 'rollout' needs"):
        make_plan(spec, view)
