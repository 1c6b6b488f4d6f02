"""Reserving what a plan needs, all or nothing, in a placement group that belongs to the job.

Each bundle of the plan is one bundle of the group, bound to its node by label: a device that is reserved
whole by one bundle is the same device for all workloads in it.
"""

from __future__ import annotations

import asyncio
import time

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from dlrl_core.errors import ReservationError
from dlrl_core.plan import ExecutionPlan
from dlrl_core.scheduler.names import reservation_name

_POLL_S = 1.0


def ask_for(job: str, plan: ExecutionPlan) -> PlacementGroup:
    """Ask the cluster for what the plan needs; returns at once. It outlives its creator until it is released."""
    group: PlacementGroup = placement_group(
        [dict(bundle.resources) for bundle in plan.bundles],
        name=reservation_name(job),
        lifetime="detached",
        bundle_label_selector=[{"ray.io/node-id": plan.nodes[bundle.node].node_id} for bundle in plan.bundles],
    )
    return group


async def granted(group: PlacementGroup, job: str, plan: ExecutionPlan, timeout_s: float) -> None:
    """Wait until the cluster has granted it; ReservationError with what is missing if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not await asyncio.to_thread(group.wait, min(_POLL_S, timeout_s)):
        if time.monotonic() > deadline:
            raise ReservationError(_shortage(job, plan, timeout_s))


def release(group: PlacementGroup) -> None:
    """Give back what the job holds. Ray does not mind if that has been done before."""
    remove_placement_group(group)


def _shortage(job: str, plan: ExecutionPlan, timeout_s: float) -> str:
    """What the cluster could not give, node by node."""
    free = ray._private.state.available_resources_per_node()
    missing = []
    for index, node in enumerate(plan.nodes):
        needs: dict[str, float] = {}
        for bundle in plan.bundles:
            if bundle.node == index:
                for name, amount in bundle.resources.items():
                    needs[name] = needs.get(name, 0) + amount
        have = free.get(node.node_id)
        label = node.address or node.node_id
        if have is None:
            missing.append(f"node {label} is gone")
            continue
        missing += [
            f"node {label} needs {amount:g} {name} and has {have.get(name, 0):g} free"
            for name, amount in sorted(needs.items())
            if have.get(name, 0) < amount
        ]
    what = "; ".join(missing) or "the cluster says nothing is missing"
    return f"job '{job}' was not granted its reservation within {timeout_s:g} s: {what}"
