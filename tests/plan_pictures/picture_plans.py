"""Plans to draw, made by the planner as for a job."""

from __future__ import annotations

from dlrl_core.plan import ExecutionPlan, make_plan, needed_cluster
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec, problems_of
from dlrl_core.spec.job_spec import PartSpec

ACTOR, ROLLOUT, REWARD, REFERENCE, CRITIC = RoleType
CLASS = ClassRef(module="m", class_name="C")


def role(role: RoleType, total: int = 1, **more) -> RoleSpec:
    return RoleSpec(role=role, cls=CLASS, total=total, **more)


def planned(*roles: RoleSpec, **more) -> ExecutionPlan:
    spec = JobSpec(trainer=CLASS, roles=roles, **more)
    assert problems_of(spec) == []
    return make_plan(spec, needed_cluster(spec))


def thirds() -> ExecutionPlan:
    """Three roles on each device, one on two devices, one without, a spare node."""
    return planned(
        role(ACTOR, 4),
        role(ROLLOUT, 4),
        role(REFERENCE, 4),
        role(CRITIC, 1, resource={"GPU": 2}),
        role(REWARD, 3, resource={"GPU": 0, "CPU": 2}),
        node_num=2,
        device_per_node=3,
        spare_nodes=1,
        with_collocation=(("actor", "rollout", "reference"),),
    )


def parts() -> ExecutionPlan:
    """A rollout in two parts, and devices that are used by half."""
    return planned(
        role(ACTOR, resource={"GPU": 0.5}),
        role(ROLLOUT, 3, parts=(PartSpec(name="prefill", total=1), PartSpec(name="decode", total=2, resource={"GPU": 2}))),
        node_num=1,
        device_per_node=6,
    )  # fmt: skip


def large(nodes: int = 12_500) -> ExecutionPlan:
    """Eight workloads on each of many nodes, most of them alike."""
    half = nodes * 4
    return planned(
        role(ACTOR, half - 8),
        role(ROLLOUT, half),
        role(REWARD, 8, resource={"GPU": 0}),
        node_num=nodes,
        device_per_node=8,
    )
