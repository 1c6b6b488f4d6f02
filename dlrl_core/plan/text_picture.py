"""A plan as text: nodes, their devices, and who sits on each."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan


def picture_of(plan: ExecutionPlan) -> str:
    """One line for each seat."""
    nodes, devices = len(plan.nodes), plan.device_count
    guests: dict[int, list[str]] = defaultdict(list)
    for workload in plan.workloads:
        share = f" {shown_share(workload.share)}" if plan.bundles[workload.bundle].devices else ""
        guests[workload.bundle].append(f"{workload.name}{share}")
    lines: dict[int, list[tuple[tuple[int, ...], str]]] = defaultdict(list)
    for number, bundle in enumerate(plan.bundles):
        lines[bundle.node].append(
            (bundle.devices or (1 << 30,), f"{_place(plan, bundle.devices)}: {', '.join(guests[number])}")
        )
    text = [f"{len(plan.workloads)} workloads on {nodes} nodes, {devices} devices ({plan.device_type})"]
    for index, node in enumerate(plan.nodes):
        text.append(f"node {index} ({node.shown})")
        text += [f"  {line}" for _, line in sorted(lines[index])]
    text += [f"spare ({spare.shown}) for nodes {', '.join(map(str, spare.replaces))}" for spare in plan.spares]
    return "\n".join(text)


def _place(plan: ExecutionPlan, devices: tuple[int, ...]) -> str:
    if not devices:
        return "no device"
    first, last = devices[0], devices[-1]
    return f"{plan.device_type} {first}" if first == last else f"{plan.device_type} {first}-{last}"


def shown_share(share: str) -> str:
    """A share as it is shown: '50%', and '1/3' where a percentage would not be exact."""
    fraction = Fraction(share)
    hundred = fraction * 100
    return f"{hundred}%" if hundred.denominator == 1 else str(fraction)
