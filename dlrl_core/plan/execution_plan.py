"""ExecutionPlan: each workload's name, role, rank, node, device and share."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrl_core.errors import SchemaError
from dlrl_core.roles import RoleType

SCHEMA = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedNode(_Frozen):
    """One node the job uses."""

    node_id: str
    address: str = ""


class Bundle(_Frozen):
    """What is reserved at once and shared by the workloads that sit in it: one device, or CPUs alone."""

    node: int
    device: int | None
    """Index of the device among those the job uses on its node; None where no device is reserved."""
    resources: dict[str, float]


class WorkloadPlan(_Frozen):
    """One workload: who it is and where it sits."""

    name: str
    role: RoleType
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node: int
    bundle: int
    resources: dict[str, float]
    """Ray resources of this workload; within its bundle's."""
    collocated_with: tuple[RoleType, ...] = ()

    @property
    def device_collocation(self) -> str | None:
        """The roles that share this workload's device as seed 001 writes them, such as 'ACTOR,ROLLOUT'."""
        return ",".join(role.name for role in self.collocated_with) or None


class ExecutionPlan(_Frozen):
    """Where everything goes. Made by the planner, carried out by the scheduler, kept in the job context."""

    plan_schema: int = SCHEMA
    device_type: str
    nodes: tuple[PlannedNode, ...]
    bundles: tuple[Bundle, ...]
    workloads: tuple[WorkloadPlan, ...]

    def of_role(self, role: RoleType) -> tuple[WorkloadPlan, ...]:
        """The workloads of a role in rank order."""
        return tuple(workload for workload in self.workloads if workload.role is role)

    @property
    def roles(self) -> tuple[RoleType, ...]:
        return tuple(dict.fromkeys(workload.role for workload in self.workloads))

    def workload(self, name: str) -> WorkloadPlan:
        return next(workload for workload in self.workloads if workload.name == name)

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> ExecutionPlan:
        try:
            plan = cls.model_validate_json(text)
        except ValidationError as error:
            raise SchemaError(f"execution plan can't be read: {error.error_count()} fields do not fit") from error
        if plan.plan_schema > SCHEMA:
            raise SchemaError(f"execution plan has schema {plan.plan_schema}, this dlrl reads up to {SCHEMA}")
        return plan

    def rows(self) -> list[dict[str, Any]]:
        """One plain row for each workload, for tables and --json."""
        return [
            {
                "workload": workload.name,
                "role": str(workload.role),
                "rank": workload.rank,
                "node": self.nodes[workload.node].address or self.nodes[workload.node].node_id,
                "node_index": workload.node,
                "device": self.bundles[workload.bundle].device,
                "share": workload.resources.get(self.device_type, 0.0),
                "resources": dict(workload.resources),
                "collocated_with": [str(role) for role in workload.collocated_with if role is not workload.role],
            }
            for workload in self.workloads
        ]

    def __str__(self) -> str:
        lines = [
            f"{len(self.workloads)} workloads on {len(self.nodes)} nodes, "
            f"{sum(bundle.device is not None for bundle in self.bundles)} devices ({self.device_type})"
        ]
        for index, node in enumerate(self.nodes):
            lines.append(f"node {index} ({node.address or node.node_id})")
            for number, bundle in enumerate(self.bundles):
                if bundle.node == index:
                    lines.append(f"  {self._bundle_line(number, bundle)}")
        return "\n".join(lines)

    def _bundle_line(self, number: int, bundle: Bundle) -> str:
        place = f"{self.device_type} {bundle.device}" if bundle.device is not None else "no device"
        guests = [
            f"{workload.name} {_percent(workload.resources.get(self.device_type, 0))}"
            for workload in self.workloads
            if workload.bundle == number
        ]
        return f"{place}: {', '.join(guests)}"


def _percent(share: float) -> str:
    return f"{float(Fraction(share).limit_denominator(10_000)) * 100:g}%"
