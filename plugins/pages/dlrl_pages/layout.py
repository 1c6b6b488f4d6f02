"""What a picture of a plan draws: node after node, row by row; of many nodes that are alike, one.

It reads the runs of the plan and never lists its workloads, so that the largest plan is drawn in a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan, GroupPlan

LONGEST_RUN = 16
"""Seats of one group on one node that are drawn one by one."""

Ranges = tuple[range, ...]


class Row(NamedTuple):
    """What is drawn as one: a seat, or consecutive seats of one group on one node."""

    group: GroupPlan
    first_seat: int
    seats: int
    first_device: int

    @property
    def devices(self) -> range:
        """Indices of its devices on the node; empty if its seats have none."""
        return range(self.first_device, self.first_device + self.seats * self.group.devices_per_seat)

    @property
    def workloads(self) -> int:
        return self.seats * len(self.group.members)

    @property
    def seat_range(self) -> range:
        return range(self.first_seat, self.first_seat + self.seats)


class DrawnNode(NamedTuple):
    """A node in full, and the nodes that have the same roles with the same shares on the same devices."""

    node: int
    rows: tuple[Row, ...]
    others: Ranges
    """Indices of those nodes."""
    others_seats: tuple[tuple[GroupPlan, Ranges], ...]
    """The seats on them, for each group."""

    @property
    def others_workloads(self) -> int:
        return sum(len(group.members) * counted(seats) for group, seats in self.others_seats)

    @property
    def others_devices(self) -> int:
        return sum(group.devices_per_seat * counted(seats) for group, seats in self.others_seats)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is drawn, and how much is left out because it would be too much even when folded."""

    nodes: tuple[DrawnNode, ...]
    left_out_nodes: int = 0
    left_out_workloads: int = 0
    left_out_devices: int = 0


class _NodeRun(NamedTuple):
    """A run on its node; two nodes are alike if all fields of their runs but the last are equal."""

    has_no_device: bool
    first_device: int
    group: int
    seats: int
    first_seat: int


def layout_of(plan: ExecutionPlan, most_rows: int) -> Layout:
    """All nodes in full if that takes at most this many rows; else folded as little as needed, at last cut short."""
    nodes = _runs_on_nodes(plan)
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, runs in enumerate(nodes):
        alike.setdefault(tuple(run[:-1] for run in runs), []).append(index)
    kinds = list(alike.values())
    full = [_rows(nodes[kind[0]], LONGEST_RUN) for kind in kinds]
    if sum(rows * len(kind) for rows, kind in zip(full, kinds, strict=True)) <= most_rows:
        return Layout(nodes=tuple(_drawn(plan, nodes, [index], LONGEST_RUN) for index in range(len(nodes))))
    longest_run = LONGEST_RUN if sum(full) + len(kinds) <= most_rows else 1
    shown, rows = 0, 0
    for kind in kinds:
        rows += _rows(nodes[kind[0]], longest_run) + 1
        if rows > most_rows and shown:
            break
        shown += 1
    hidden = [index for kind in kinds[shown:] for index in kind]
    left_out = [(run.seats, plan.groups[run.group]) for index in hidden for run in nodes[index]]
    return Layout(
        nodes=tuple(_drawn(plan, nodes, kind, longest_run) for kind in kinds[:shown]),
        left_out_nodes=len(hidden),
        left_out_workloads=sum(seats * len(group.members) for seats, group in left_out),
        left_out_devices=sum(seats * group.devices_per_seat for seats, group in left_out),
    )


def _runs_on_nodes(plan: ExecutionPlan) -> list[list[_NodeRun]]:
    """The runs on each node: in the order of devices, those without a device last."""
    nodes: list[list[_NodeRun]] = [[] for _ in plan.nodes]
    for index, group in enumerate(plan.groups):
        first_seat = 0
        for node, seats, first_device in group.runs:
            has_none = not group.devices_per_seat
            nodes[node].append(_NodeRun(has_none, 0 if has_none else first_device, index, seats, first_seat))
            first_seat += seats
    for runs in nodes:
        runs.sort()
    return nodes


def _rows(runs: Sequence[_NodeRun], longest_run: int) -> int:
    """How many rows a node takes, its heading included."""
    return 1 + sum(1 if run.has_no_device or run.seats > longest_run else run.seats for run in runs)


def _drawn(
    plan: ExecutionPlan, nodes: Sequence[Sequence[_NodeRun]], kind: Sequence[int], longest_run: int
) -> DrawnNode:
    first, *others = kind
    rows: list[Row] = []
    for run in nodes[first]:
        group = plan.groups[run.group]
        row = Row(group, run.first_seat, run.seats, run.first_device)
        if run.has_no_device or run.seats > longest_run:
            rows.append(row)
        else:
            rows += _one_by_one(row)
    return DrawnNode(
        node=first,
        rows=tuple(rows),
        others=merged(range(index, index + 1) for index in others),
        others_seats=_seats_on(plan, nodes, others),
    )


def _one_by_one(row: Row) -> list[Row]:
    width = row.group.devices_per_seat
    return [Row(row.group, row.first_seat + i, 1, row.first_device + i * width) for i in range(row.seats)]


def _seats_on(
    plan: ExecutionPlan, nodes: Sequence[Sequence[_NodeRun]], chosen: Sequence[int]
) -> tuple[tuple[GroupPlan, Ranges], ...]:
    found: dict[int, list[range]] = {}
    for index in chosen:
        for run in nodes[index]:
            found.setdefault(run.group, []).append(range(run.first_seat, run.first_seat + run.seats))
    return tuple((plan.groups[group], merged(seats)) for group, seats in found.items())


def merged(ranges: Iterable[range]) -> Ranges:
    """The same numbers in as few ranges as possible; `ranges` are in rising order."""
    found: list[range] = []
    for one in ranges:
        if found and found[-1].stop == one.start:
            found[-1] = range(found[-1].start, one.stop)
        else:
            found.append(one)
    return tuple(found)


def counted(ranges: Ranges) -> int:
    return sum(map(len, ranges))
