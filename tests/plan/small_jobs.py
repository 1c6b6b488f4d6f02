"""Jobs and clusters in few words, for tables of cases."""

from __future__ import annotations

from typing import Any

from dlrl_core.plan import ClusterView, ExecutionPlan, NodeView
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, PartSpec, RoleSpec, problems_of

CLASS = ClassRef(module="m", class_name="C")


def job(*roles: RoleSpec, **more: Any) -> JobSpec:
    """A valid job of these roles."""
    spec = JobSpec(trainer=CLASS, roles=roles, **more)
    assert problems_of(spec) == []
    return spec


def role(name: str, total: int = 1, per_node: int | None = None, **more: Any) -> RoleSpec:
    return RoleSpec(role=RoleType(name), cls=CLASS, total=total, per_node=per_node, **more)


def parted(name: str, *parts: PartSpec, **more: Any) -> RoleSpec:
    return role(name, sum(part.total for part in parts), parts=parts, **more)


def part(name: str, total: int = 1, **more: Any) -> PartSpec:
    return PartSpec(name=name, total=total, **more)


def cluster(*gpus: float, cpus: float = 64, racks: str = "") -> ClusterView:
    """A node for each number of free GPUs; `racks` has a letter for each."""
    return ClusterView(
        nodes=tuple(
            NodeView(
                node_id=f"node-{index}",
                free={"GPU": count, "CPU": cpus},
                labels={"rack": racks[index]} if racks else {},
            )
            for index, count in enumerate(gpus)
        )
    )


def nodes_of(plan: ExecutionPlan, name: str) -> list[str]:
    """The node of each workload of a role or part, in rank order."""
    role, _, part = name.partition(".")
    return [
        plan.nodes[workload.node].node_id
        for workload in plan.of_role(RoleType(role))
        if not part or workload.part == part
    ]


def devices_of(plan: ExecutionPlan, name: str) -> list[tuple[int, tuple[int, ...]]]:
    """Node and devices of each workload of a role, in rank order."""
    bundles = [plan.bundles[workload.bundle] for workload in plan.of_role(RoleType(name))]
    return [(bundle.node, bundle.devices) for bundle in bundles]
