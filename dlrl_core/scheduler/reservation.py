"""Reserving what a plan needs, all or nothing, in placement groups that belong to the job.

Each bundle of the plan is one bundle of the group, bound to its node by label: devices that are reserved whole by
one bundle are the same devices for all workloads in it. A spare node is a group of its own, so that it can be given
up for another use by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray import PlacementGroupID
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from dlrl_core.plan import ExecutionPlan
from dlrl_core.scheduler.names import reservation_name

_POLL_S = 0.5
_NODE_ID = "ray.io/node-id"


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """What a run of a job has asked for with one plan. It outlives whoever asked, until it is released."""

    job: str
    run_id: str
    number: int
    """Of the plan: a run that finds its place taken plans again."""
    seats: PlacementGroup
    spares: tuple[PlacementGroup, ...]


def ask_for(job: str, run_id: str, number: int, plan: ExecutionPlan, *, is_first: bool = False) -> Reservation:
    """Ask the cluster for what the plan needs; returns at once.

    What stands under this number already is taken as it is, unless the caller knows that it is the first to ask.
    """
    standing = {} if is_first else {name: group for name, group, _ in _standing(job, run_id)}
    wanted = {_seats(job, run_id, number): ([bundle.resources for bundle in plan.bundles], _nodes(plan))}
    for index, spare in enumerate(plan.spares):
        wanted[_spare(job, run_id, number, index)] = ([spare.resources], [spare.node_id])
    groups = [
        standing.get(name)
        or placement_group(
            [dict(bundle) for bundle in bundles],
            name=name,
            lifetime="detached",
            bundle_label_selector=[{_NODE_ID: node} for node in nodes],
        )
        for name, (bundles, nodes) in wanted.items()
    ]
    return Reservation(job=job, run_id=run_id, number=number, seats=groups[0], spares=tuple(groups[1:]))


def ask_for_move(job: str, run_id: str, number: int, plan: ExecutionPlan, index: int) -> PlacementGroup:
    """Ask for the seats of one node of the plan that takes the place of another; what stands already is taken."""
    node = plan.nodes[index]
    name = _move(job, run_id, number, node.move)
    standing = {name: group for name, group, _ in _standing(job, run_id)}
    bundles = [dict(plan.bundles[bundle].resources) for bundle in plan.bundles_on(index)]
    return standing.get(name) or placement_group(
        bundles, name=name, lifetime="detached", bundle_label_selector=[{_NODE_ID: node.node_id}] * len(bundles)
    )


def release_spare(job: str, run_id: str, node_id: str) -> None:
    """Give up what is held back on a spare node."""
    table: dict[str, dict[str, Any]] = placement_group_table()
    prefix = reservation_name(job, run_id, "")
    for group in table.values():
        is_spare = group["name"].startswith(prefix) and "-spare" in group["name"] and group["state"] != "REMOVED"
        if is_spare and node_id in group["bundles_to_node_id"].values():
            remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(group["placement_group_id"]))))


async def is_granted(group: PlacementGroup, timeout_s: float) -> bool:
    """Whether the cluster has granted this one within the time."""
    return bool(await asyncio.to_thread(group.wait, timeout_s))


async def granted(reservation: Reservation, timeout_s: float) -> bool:
    """Whether the cluster has granted all of it within the time."""
    deadline = time.monotonic() + timeout_s
    for group in (reservation.seats, *reservation.spares):
        while not await asyncio.to_thread(group.wait, min(_POLL_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() > deadline:
                return False
    return True


def release(reservation: Reservation) -> None:
    """Give back what was asked for. Ray does not mind if that has been done before."""
    for group in (reservation.seats, *reservation.spares):
        remove_placement_group(group)


def release_group(group: PlacementGroup) -> None:
    """Give back one placement group."""
    remove_placement_group(group)


def release_all(job: str, run_id: str, *, but: int | None = None) -> None:
    """Give back all that this run of the job ever asked for, whoever asked; but not under that number."""
    kept = _seats(job, run_id, but) if but is not None else None
    for name, group, _ in _standing(job, run_id):
        if kept is None or not (name == kept or name.startswith(f"{kept}-")):
            remove_placement_group(group)


def _seats(job: str, run_id: str, number: int) -> str:
    return reservation_name(job, run_id, f"plan{number}")


def _spare(job: str, run_id: str, number: int, index: int) -> str:
    return f"{_seats(job, run_id, number)}-spare{index}"


def _move(job: str, run_id: str, number: int, move: int) -> str:
    return f"{_seats(job, run_id, number)}-move{move}"


def _nodes(plan: ExecutionPlan) -> list[str]:
    return [plan.nodes[bundle.node].node_id for bundle in plan.bundles]


def _standing(job: str, run_id: str) -> Iterator[tuple[str, PlacementGroup, str]]:
    """Name, group and state of what the run has. Ray finds a group by name only from the namespace that made it."""
    prefix = reservation_name(job, run_id, "")
    table: dict[str, dict[str, Any]] = placement_group_table()
    for group in table.values():
        if group["name"].startswith(prefix) and group["state"] != "REMOVED":
            id_ = PlacementGroupID(bytes.fromhex(group["placement_group_id"]))
            yield group["name"], PlacementGroup(id_), group["state"]
