"""Reserving what a plan needs, all or nothing, in placement groups that belong to the job.

Each bundle of the plan is one bundle of the group, bound to its node by label: all workloads of a bundle get the
same devices. A spare node is a group of its own, so that it can be given back alone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ray import PlacementGroupID
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from dlrl_core.plan import ExecutionPlan
from dlrl_core.roles import reservation_name

_POLL_S = 0.5
_NODE_ID = "ray.io/node-id"
_GROUP = re.compile(r"plan(?P<number>\d+)(?:-(?P<kind>spare|move)(?P<index>\d+))?")


class GroupKind(StrEnum):
    """What a placement group reserves."""

    SEATS = "seats"
    """All seats of a plan."""
    SPARE = "spare"
    """One spare node."""
    MOVE = "move"
    """The seats of a node that replaced another."""


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A placement group of a run, by its name: the number of its plan, what it reserves, and which one of them."""

    number: int
    kind: GroupKind = GroupKind.SEATS
    index: int = 0

    def name(self, job: str, run_id: str) -> str:
        what = "" if self.kind is GroupKind.SEATS else f"-{self.kind}{self.index}"
        return reservation_name(job, run_id, f"plan{self.number}{what}")

    @classmethod
    def of(cls, name: str) -> _Group | None:
        found = _GROUP.fullmatch(name.rpartition("/")[2])
        if found is None:
            return None
        kind = GroupKind(found["kind"] or GroupKind.SEATS)
        return cls(number=int(found["number"]), kind=kind, index=int(found["index"] or 0))


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """What a run of a job has asked for with one plan. It outlives the process that asked, until it is released."""

    job: str
    run_id: str
    number: int
    """Of the plan: a run whose resources were taken by another job plans again."""
    groups: tuple[PlacementGroup, ...]
    """That of the seats, then one for each spare node."""


def ask_for(job: str, run_id: str, number: int, plan: ExecutionPlan, *, is_first: bool = False) -> Reservation:
    """Ask the cluster for what the plan needs; returns at once.

    Groups that exist under this number are used as they are; `is_first` tells that there are none.
    """
    standing = {} if is_first else _standing(job, run_id)
    nodes = [plan.nodes[bundle.node].node_id for bundle in plan.bundles]
    wanted = {_Group(number=number): ([bundle.resources for bundle in plan.bundles], nodes)}
    for index, spare in enumerate(plan.spares):
        wanted[_Group(number=number, kind=GroupKind.SPARE, index=index)] = ([spare.resources], [spare.node_id])
    groups = [
        standing.get(group) or _made(group.name(job, run_id), bundles, nodes)
        for group, (bundles, nodes) in wanted.items()
    ]
    return Reservation(job=job, run_id=run_id, number=number, groups=tuple(groups))


def ask_for_move(job: str, run_id: str, number: int, plan: ExecutionPlan, index: int) -> PlacementGroup:
    """Ask for the seats of a node that replaces another one in the plan; a group that exists is used as it is."""
    node = plan.nodes[index]
    group = _Group(number=number, kind=GroupKind.MOVE, index=node.move)
    bundles = [plan.bundles[bundle].resources for bundle in plan.bundles_on(index)]
    found = _standing(job, run_id).get(group)
    return found or _made(group.name(job, run_id), bundles, [node.node_id] * len(bundles))


def _made(name: str, bundles: Sequence[Mapping[str, float]], nodes: Sequence[str]) -> PlacementGroup:
    """A new placement group with each bundle on its node; it outlives the process that asked."""
    made: PlacementGroup = placement_group(
        [dict(bundle) for bundle in bundles],
        name=name,
        lifetime="detached",
        bundle_label_selector=[{_NODE_ID: node} for node in nodes],
    )
    return made


def release_spare(job: str, run_id: str, node_id: str) -> None:
    """Give up what is held back on a spare node."""
    for group, row in _rows(job, run_id):
        if group.kind is GroupKind.SPARE and node_id in row["bundles_to_node_id"].values():
            remove_placement_group(_handle(row))


async def are_granted(groups: Iterable[PlacementGroup], timeout_s: float) -> bool:
    """Whether the cluster has granted all of them within the time."""
    deadline = time.monotonic() + timeout_s
    for group in groups:
        while not await asyncio.to_thread(group.wait, min(_POLL_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() > deadline:
                return False
    return True


def release(groups: Iterable[PlacementGroup]) -> None:
    """Give back these placement groups; a second time does nothing."""
    for group in groups:
        remove_placement_group(group)


def release_all(job: str, run_id: str, *, but: int | None = None) -> None:
    """Give back all placement groups of this run, but those of plan number `but`."""
    for group, handle in _standing(job, run_id).items():
        if group.number != but:
            remove_placement_group(handle)


def _standing(job: str, run_id: str) -> dict[_Group, PlacementGroup]:
    """The placement groups that the run has."""
    return {group: _handle(row) for group, row in _rows(job, run_id)}


def _rows(job: str, run_id: str) -> Iterator[tuple[_Group, dict[str, Any]]]:
    """Ray's table of the run's groups. Ray finds a group by name only from the namespace that made it."""
    prefix = reservation_name(job, run_id, "")
    table: dict[str, dict[str, Any]] = placement_group_table()
    for row in table.values():
        group = _Group.of(row["name"]) if row["name"].startswith(prefix) else None
        if group is not None and row["state"] != "REMOVED":
            yield group, row


def _handle(row: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
