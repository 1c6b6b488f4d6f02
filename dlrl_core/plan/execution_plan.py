"""ExecutionPlan: each workload's name, role, rank, node, device and share.

A plan keeps its seats as runs, so that a plan of a hundred thousand workloads is made, stored and read in a moment;
`workloads` and `bundles` list them one by one. A seat is what rank i of all roles of a group shares; its bundle is
what Ray reserves for it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrl_core.errors import SchemaError
from dlrl_core.roles import RoleType
from dlrl_core.spec.state_size import StateSize

SCHEMA = 2


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedNode(_Frozen):
    """One node the job uses."""

    node_id: str
    address: str = ""
    move: int = 0
    """0 for a planned node; else the number of the move by which it replaced a node that failed."""

    @property
    def shown(self) -> str:
        return self.address or self.node_id


class SpareNode(PlannedNode):
    """A node that is held back to replace another one."""

    resources: dict[str, float]
    """What is reserved on it: enough for any of the nodes that it can replace."""
    replaces: tuple[int, ...]
    """Those nodes, by their index."""


class Run(NamedTuple):
    """Seats with consecutive ranks on one node."""

    node: int
    seats: int
    first_device: int
    """Index of the first device of the first seat among those the job uses on its node."""


class MemberPlan(_Frozen):
    """One role, or a part of one, in a group that shares devices."""

    role: RoleType
    part: str | None = None
    first_rank: int = 0
    """Rank of its first workload among all of the role; a part's ranks come after those of the parts before it."""
    world_size: int
    """Workloads of the whole role."""
    share: str
    """Of its devices, exactly, such as '1/3'; '0' if it has none."""
    resources: dict[str, float]
    """Ray resources of each workload; within its seat's."""


class GroupPlan(_Frozen):
    """Roles that share devices, and the seats they share."""

    members: tuple[MemberPlan, ...]
    devices_per_seat: int
    resources: dict[str, float]
    """What is reserved for each seat."""
    runs: tuple[Run, ...]

    @property
    def seats(self) -> int:
        return sum(run.seats for run in self.runs)


class Bundle(NamedTuple):
    """What Ray reserves for one seat, shared by the workloads on it: devices, or CPUs alone."""

    node: int
    devices: tuple[int, ...]
    """Indices of the devices among those the job uses on its node; empty where no device is reserved."""
    resources: dict[str, float]


class WorkloadPlan(NamedTuple):
    """One workload: its name, role and ranks, and its node and bundle."""

    name: str
    role: RoleType
    part: str | None
    rank: int
    world_size: int
    part_rank: int
    part_size: int
    local_rank: int
    local_world_size: int
    node: int
    bundle: int
    share: str
    resources: dict[str, float]
    """Ray resources of this workload; within its bundle's."""
    collocated_with: tuple[RoleType, ...]
    """The roles on its device, itself included; empty if it has its device for itself."""

    @property
    def device_collocation(self) -> str | None:
        """The roles that share this workload's device as seed 001 writes them, such as 'ACTOR,ROLLOUT'."""
        return ",".join(role.name for role in self.collocated_with) or None


class ExecutionPlan(_Frozen):
    """The placement of a job. Made by the planner, carried out by the scheduler, kept in the job context."""

    plan_schema: int = SCHEMA
    device_type: str
    nodes: tuple[PlannedNode, ...]
    groups: tuple[GroupPlan, ...]
    spares: tuple[SpareNode, ...] = ()
    deaths: dict[RoleType, str] = {}
    """What the death of a workload of each role would restart, in one sentence; filled by `RLJob.plan` only."""
    state_sizes: dict[RoleType, StateSize] = {}
    """How large the committed state of a role is, of those that say; filled by `RLJob.plan` only."""

    @functools.cached_property
    def bundles(self) -> tuple[Bundle, ...]:
        """The bundle of each seat, group by group in rank order."""
        found = []
        for group in self.groups:
            width = group.devices_per_seat
            for node, seats, first in group.runs:
                if not width:
                    found.extend([Bundle(node, (), group.resources)] * seats)
                else:
                    found.extend(
                        Bundle(node, tuple(range(device, device + width)), group.resources)
                        for device in range(first, first + seats * width, width)
                    )
        return tuple(found)

    @functools.cached_property
    def workloads(self) -> tuple[WorkloadPlan, ...]:
        """All workloads, role by role in rank order."""
        counts = self._counts_on_nodes()
        first_bundle = 0
        found: dict[RoleType, list[tuple[int, int, GroupPlan, MemberPlan]]] = defaultdict(list)
        for group in self.groups:
            for member in group.members:
                found[member.role].append((member.first_rank, first_bundle, group, member))
            first_bundle += group.seats
        workloads: list[WorkloadPlan] = []
        for role, parts in found.items():
            on_node: dict[int, int] = defaultdict(int)
            for _, bundle, group, member in sorted(parts, key=lambda part: part[0]):
                _add_workloads(workloads, group, member, bundle, on_node, counts[role])
        return tuple(workloads)

    def _counts_on_nodes(self) -> dict[RoleType, dict[int, int]]:
        counts: dict[RoleType, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for group in self.groups:
            for member in group.members:
                on_node = counts[member.role]
                for run in group.runs:
                    on_node[run.node] += run.seats
        return counts

    def moved(self, index: int, node_id: str, address: str) -> ExecutionPlan:
        """The same plan with this node replaced by another; if that was a spare node, it no longer is."""
        number = max(node.move for node in self.nodes) + 1
        new = PlannedNode(node_id=node_id, address=address, move=number)
        nodes = tuple(new if at == index else node for at, node in enumerate(self.nodes))
        spares = tuple(spare for spare in self.spares if spare.node_id != node_id)
        return self.model_copy(update={"nodes": nodes, "spares": spares})

    def bundles_on(self, index: int) -> list[int]:
        """The bundles of a node, in order."""
        return [number for number, bundle in enumerate(self.bundles) if bundle.node == index]

    def of_role(self, role: RoleType) -> tuple[WorkloadPlan, ...]:
        """The workloads of a role in rank order."""
        return tuple(workload for workload in self.workloads if workload.role is role)

    @property
    def roles(self) -> tuple[RoleType, ...]:
        return tuple(dict.fromkeys(member.role for group in self.groups for member in group.members))

    @property
    def device_count(self) -> int:
        """How many devices the job uses; those of spare nodes are not counted."""
        return sum(group.seats * group.devices_per_seat for group in self.groups)

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> ExecutionPlan:
        try:
            plan = cls.model_validate_json(text)
        except ValidationError as error:
            raise SchemaError(f"execution plan can't be read: {error.error_count()} fields do not fit") from error
        if plan.plan_schema != SCHEMA:
            raise SchemaError(f"execution plan has schema {plan.plan_schema}, this dlrl reads {SCHEMA}")
        return plan

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """One plain row for each workload, or for the first ones, for tables and --json."""
        bundles = self.bundles
        return [
            {
                "workload": workload.name,
                "role": str(workload.role),
                "part": workload.part,
                "rank": workload.rank,
                "local_rank": workload.local_rank,
                "node": self.nodes[workload.node].shown,
                "node_index": workload.node,
                "devices": list(bundles[workload.bundle].devices),
                "share": workload.share,
                "resources": dict(workload.resources),
                "collocated_with": [str(role) for role in workload.collocated_with if role is not workload.role],
            }
            for workload in self.workloads[:most]
        ]

    def __str__(self) -> str:
        """A picture in text; of many nodes that are alike, one is drawn."""
        return self.in_format("text")

    def __repr__(self) -> str:
        counts = {
            "workload": sum(group.seats * len(group.members) for group in self.groups),
            "node": len(self.nodes),
            f"{self.device_type} device": self.device_count,
        }
        workloads, nodes, devices = (f"{count} {thing}{'s' * (count != 1)}" for thing, count in counts.items())
        return f"<ExecutionPlan: {workloads} on {nodes}, {devices}>"

    def _repr_html_(self) -> str:
        """The picture, for a notebook."""
        drawn = self.to_svg()
        return drawn[drawn.index("<svg") :]

    def to_svg(self) -> str:
        """The same picture as an SVG document that needs nothing else."""
        return self.in_format("svg")

    def to_html(self) -> str:
        """A page that needs nothing else: the picture, the workloads, and what each role's death restarts."""
        return self.in_format("html")

    def in_format(self, name: str) -> str:
        """The plan as a document in a format that a plugin registers. Raises PluginError if none does."""
        from dlrl_core.plugin import plugin_host

        return plugin_host().plan_format(name)(self)


def _add_workloads(
    workloads: list[WorkloadPlan],
    group: GroupPlan,
    member: MemberPlan,
    bundle: int,
    on_node: dict[int, int],
    counts: dict[int, int],
) -> None:
    """The workloads of one member of a group, seat by seat. `on_node` counts those of its role so far."""
    role, part, world_size = member.role, member.part, member.world_size
    share, resources = member.share, member.resources
    prefix, size = f"{role.value}-", group.seats
    sharing = tuple(sorted({one.role for one in group.members}, key=list(RoleType).index))
    collocated = sharing if len(group.members) > 1 else ()
    rank, part_rank = member.first_rank, 0
    for node, seats, _ in group.runs:
        local_rank, local_size = on_node[node], counts[node]
        for index in range(seats):
            workloads.append(
                WorkloadPlan(
                    f"{prefix}{rank + index}",
                    role,
                    part,
                    rank + index,
                    world_size,
                    part_rank + index,
                    size,
                    local_rank + index,
                    local_size,
                    node,
                    bundle + index,
                    share,
                    resources,
                    collocated,
                )
            )
        on_node[node] += seats
        rank, part_rank, bundle = rank + seats, part_rank + seats, bundle + seats
