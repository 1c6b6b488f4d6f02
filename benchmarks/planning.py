"""How planning grows, from 100 to 100,000 workloads, and over what Ray takes for 3,000 empty calls.

    python -m benchmarks.planning

Two jobs on nodes of 8 devices: one whose five roles have devices of their own, and one that combines device and
host collocation, nodes kept apart, racks, CPU-only workloads and spare nodes. A plan counts as made when every
workload and every bundle of it is spelled out. Growth compares the time per workload with that at a thousand. The
calls are held against the first job, on 12,500 nodes; they go to one actor, and each is waited for before the next, as
a controller would make them. Sent all at once they take less, which is shown too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import ray

from benchmarks.report import Comparison, report
from dlrl_core.plan import ClusterView, NodeView, make_plan
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec, problems_of
from dlrl_local_ray.local_cluster import LocalCluster

ROUNDS = 5
CALLS = 3_000
SIZES = (100, 1_000, 10_000, 100_000)
GROWTH_BAR = 2.0
CALLS_BAR = 1.0
CLASS = ClassRef(module="benchmarks.bench_roles", class_name="Idle")


def separate(workloads: int) -> tuple[JobSpec, ClusterView]:
    """Five roles, each on devices of its own, that fill all nodes."""
    nodes = -(-workloads // 8)
    shares = {"actor": 2, "rollout": 2, "critic": 2, "reference": 1, "reward": 1}
    counts = {role: share * workloads // 8 for role, share in shares.items()}
    return _job(nodes, [RoleSpec(role=role, cls=CLASS, total=total) for role, total in counts.items()]), _nodes(nodes)


def combined(workloads: int) -> tuple[JobSpec, ClusterView]:
    """Every strategy in one job: on each of five nodes, as many workloads as devices."""
    half = workloads // 20 * 2
    nodes = -(-workloads // 8)
    roles = [
        RoleSpec(role="actor", cls=CLASS, total=2 * half, per_node=2),
        RoleSpec(role="reference", cls=CLASS, total=2 * half, per_node=2),
        RoleSpec(role="critic", cls=CLASS, total=half),
        RoleSpec(role="rollout", cls=CLASS, total=4 * half, spread_over="rack"),
        RoleSpec(role="reward", cls=CLASS, total=half, resource={"GPU": 0, "CPU": 0.5}),
    ]
    rules = {
        "with_collocation": (("actor", "reference"),),
        "with_host_collocation": (("actor", "critic"),),
        "without_collocation": (("actor", "rollout"),),
        "spare_nodes": 2,
    }
    return _job(2 * nodes, roles, **rules), _nodes(2 * nodes + 2)


def _job(nodes: int, roles: list[RoleSpec], **rules: Any) -> JobSpec:
    spec = JobSpec(trainer=CLASS, node_num=nodes, device_per_node=8, roles=tuple(roles), **rules)
    assert not problems_of(spec), problems_of(spec)
    return spec


def _nodes(count: int) -> ClusterView:
    """Nodes of about sixteen to a rack. Ray's ids are random, so neighbours in the view are in different racks."""
    free = {"CPU": 96.0, "GPU": 8.0}
    racks = max(1, count // 16)
    return ClusterView(
        nodes=tuple(
            NodeView(node_id=f"node-{i}", free=free, labels={"rack": f"rack-{i % racks}"}) for i in range(count)
        )
    )


def planning_s(job: Callable[[int], tuple[JobSpec, ClusterView]], workloads: int) -> float:
    """Seconds for each workload, over as many plans as make up a hundred thousand, at most thirty."""
    spec, cluster = job(workloads)
    repeats = min(30, max(SIZES) // workloads)
    gc.collect()
    began = time.perf_counter()
    for _ in range(repeats):
        plan = make_plan(spec, cluster)
        planned = len(plan.workloads)
        assert plan.bundles
    seconds = time.perf_counter() - began
    return seconds / repeats / planned


class Nothing:
    def nothing(self) -> None:
        pass


def calls_s(actor: Any, *, at_once: bool) -> float:
    began = time.perf_counter()
    if at_once:
        ray.get([actor.nothing.remote() for _ in range(CALLS)])
    else:
        for _ in range(CALLS):
            ray.get(actor.nothing.remote())
    return time.perf_counter() - began


def main() -> None:
    cluster = LocalCluster()
    jobs = {"separate": separate, "combined": combined}
    per_workload: dict[tuple[str, int], list[float]] = {(name, size): [] for name in jobs for size in SIZES}
    one_by_one: list[float] = []
    all_at_once: list[float] = []
    try:
        ray.init(
            address=cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 2})), log_to_driver=False
        )
        actor_class: Any = ray.remote(Nothing)
        actor = actor_class.remote()
        ray.get(actor.nothing.remote())
        for _ in range(ROUNDS):
            for name, job in jobs.items():
                for size in SIZES:
                    per_workload[name, size].append(planning_s(job, size))
            one_by_one.append(calls_s(actor, at_once=False))
            all_at_once.append(calls_s(actor, at_once=True))
    finally:
        ray.shutdown()
        cluster.stop()
    for name in jobs:
        shown = ", ".join(f"{size:,}: {min(per_workload[name, size]) * 1e6:.1f} µs" for size in SIZES)
        print(f"{name}: time per workload at {shown}")
    largest = {name: [seconds * SIZES[-1] for seconds in per_workload[name, SIZES[-1]]] for name in jobs}
    plans = ", ".join(f"{name} {min(seconds):.2f} s" for name, seconds in largest.items())
    print(f"the largest plans: {plans}; 3,000 calls sent at once: {min(all_at_once):.2f} s")
    report(
        [
            *(
                Comparison(
                    name=f"growth_{name}",
                    ours_s=per_workload[name, SIZES[-1]],
                    theirs_s=per_workload[name, 1_000],
                    bar=GROWTH_BAR,
                )
                for name in jobs
            ),
            Comparison(name="over_3000_calls", ours_s=largest["separate"], theirs_s=one_by_one, bar=CALLS_BAR),
        ],
        ours="largest",
        theirs="1,000 / calls",
    )


if __name__ == "__main__":
    main()
