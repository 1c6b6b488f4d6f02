"""The checks of a plan, checked: each way to break a plan is noticed."""

from __future__ import annotations

import pytest
from plan_promises import broken_promises
from random_jobs import CLASS

from dlrl_core.plan import ClusterView, ExecutionPlan, NodeView, make_plan
from dlrl_core.plan.execution_plan import Run
from dlrl_core.spec import JobSpec, RoleSpec

CLUSTER = ClusterView(
    nodes=tuple(
        NodeView(node_id=f"node-{i}", free={"GPU": 4, "CPU": 16}, labels={"rack": f"r{i % 2}"}) for i in range(5)
    )
)
SPEC = JobSpec(
    trainer=CLASS,
    roles=(
        RoleSpec(role="actor", cls=CLASS, total=4, per_node=2),
        RoleSpec(role="rollout", cls=CLASS, total=4, per_node=2),
        RoleSpec(role="reward", cls=CLASS, total=2, spread_over="rack", resource={"GPU": 2.0}),
        RoleSpec(role="critic", cls=CLASS, total=2, pack_into="rack"),
        RoleSpec(role="reference", cls=CLASS, total=2, node_labels={"rack": ("r0",)}),
    ),
    with_collocation=(("actor", "rollout"),),
    with_host_collocation=(("critic", "reference"),),
    without_collocation=(("actor", "critic"),),
    node_num=4,
    device_per_node=4,
    spare_nodes=1,
)


def plan_with(change) -> ExecutionPlan:
    """The right plan with one group changed: `change` gets the group's index, and the group."""
    plan = make_plan(SPEC, CLUSTER)
    groups = tuple(change(index, group) for index, group in enumerate(plan.groups))
    return plan.model_copy(update={"groups": groups})


def moved(group: int, runs: list[Run]):
    return lambda index, one: one.model_copy(update={"runs": tuple(runs)}) if index == group else one


def test_the_right_plan_breaks_nothing():
    assert broken_promises(SPEC, CLUSTER, make_plan(SPEC, CLUSTER)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moved(0, [Run(0, 4, 0)]), "per_node=2"),
        (moved(0, [Run(0, 2, 0)]), "'actor' has 2 workloads"),
        (moved(0, [Run(0, 2, 0), Run(1, 2, 7)]), "has the devices"),
        (moved(1, [Run(0, 2, 0)]), "units in 'rack', at most 1 are even"),
        (moved(1, [Run(0, 1, 0), Run(1, 1, 0)]), "has too little GPU"),
        (moved(2, [Run(0, 1, 0), Run(1, 1, 0)]), "'critic' is in more than one 'rack'"),
        (moved(2, [Run(3, 2, 2)]), "'reference' is not with rank 0 of 'critic'"),
        (moved(2, [Run(1, 2, 2)]), "'actor' and 'critic' meet"),
        (moved(3, [Run(1, 2, 0)]), "'reference' is on a node without its labels"),
    ],
)
def test_a_plan_that_was_tampered_with_is_noticed(change, message):
    assert any(message in broken for broken in broken_promises(SPEC, CLUSTER, plan_with(change)))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"spares": ()}, "0 spare nodes instead of 1"),
        ({"nodes": make_plan(SPEC, CLUSTER).nodes[:1] * 4}, "a node is used twice"),
    ],
)
def test_missing_spares_and_doubled_nodes_are_noticed(update, message):
    plan = make_plan(SPEC, CLUSTER).model_copy(update=update)
    assert any(message in broken for broken in broken_promises(SPEC, CLUSTER, plan))
