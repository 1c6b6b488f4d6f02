"""Placing the host groups one after the other without going back: linear in time, and nearly always enough."""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlrl_core.plan.problem import Amounts, NodeUnits, Placement, Problem, Stuck
from dlrl_core.plan.spares import choose_spares

_Candidate = tuple[bool, int, int, int]
"""A node to spread over: whether it would be opened, what it has of the group, its room (negative), its index."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """One way to choose among nodes that have room."""

    opens_at_once: bool
    """Choose the job's nodes first, those that fit the job's shape tightest, and balance the groups over them."""
    prefers_room: bool
    """A group takes the nodes with the most room; else nodes already in use, then the tightest."""
    is_careful: bool = False
    """Groups that take much of a node at once come first; and of nodes with the same room, those with the most left."""


STYLES = (
    Style(opens_at_once=True, prefers_room=True),
    Style(opens_at_once=False, prefers_room=False),
    Style(opens_at_once=False, prefers_room=True),
    Style(opens_at_once=False, prefers_room=True, is_careful=True),
)


def place_greedily(problem: Problem, units: Sequence[int], style: Style) -> Placement | Stuck:
    """A placement of all groups, the most difficult first; else the group at which this style failed."""
    free = _FreeNodes(problem, style)
    placed: list[NodeUnits] = [[] for _ in units]
    order = order_of(problem, largest_first=style.is_careful)
    for place, group in enumerate(order):
        found = free.nodes_for(group, units[group])
        if found is None:
            return Stuck(group=group, others=tuple(order[:place]), used=free.in_use, is_certain=False)
        free.take(group, found)
        placed[group] = sorted(found)
    spares = choose_spares(problem, placed) if problem.spare_nodes else ()
    if spares is None:
        return Stuck(group=None, used=free.in_use, is_certain=False)
    return Placement(units=tuple(units), node_units=tuple(placed), spares=spares)


def order_of(problem: Problem, *, largest_first: bool = False) -> list[int]:
    """The groups, most difficult first: few eligible nodes, much on each node, rules over labels or foes."""

    def difficulty(index: int) -> tuple[float, ...]:
        group = problem.groups[index]
        devices = problem.needs[index][0]
        return (
            not devices,
            len(problem.eligible[index]),
            -group.step * devices if largest_first else 0,
            -(group.units_per_node or 0) * devices,
            -devices,
            not (group.pack_into or group.spread_over),
            not group.foes,
            index,
        )

    return sorted(range(len(problem.groups)), key=difficulty)


class _FreeNodes:
    """What remains of each node while groups are placed one after the other."""

    def __init__(self, problem: Problem, style: Style) -> None:
        self._problem = problem
        self._style = style
        self.left: list[Amounts] = list(problem.caps)
        self._guests = [0] * len(problem.nodes)
        self._is_open = [False] * len(problem.nodes)
        self.in_use = 0
        self._openable = problem.most_nodes
        if style.opens_at_once:
            self._open_the_tightest()

    def _open_the_tightest(self) -> None:
        """Open as many nodes as the job may use: the smallest that have its shape, then the largest of the others."""
        problem = self._problem
        shape = problem.spec.device_per_node
        free = [problem.nodes[i].free.get(problem.spec.device_type, 0) for i in range(len(problem.nodes))]
        order = sorted(range(len(free)), key=lambda i: (free[i] < shape, free[i] if free[i] >= shape else -free[i], i))
        for index in order[: problem.most_nodes]:
            self._is_open[index] = True
        self._openable = 0

    def take(self, group: int, found: NodeUnits) -> None:
        need = self._problem.needs[group]
        after: dict[tuple[Amounts, int], Amounts] = {}
        for node, units in found:
            before = self.left[node]
            if (left := after.get((before, units))) is None:
                left = tuple(have - units * one for have, one in zip(before, need, strict=True))
                after[before, units] = left
            self.left[node] = left
            self.in_use += not self._guests[node]
            self._guests[node] |= 1 << group
            if not self._is_open[node]:
                self._is_open[node] = True
                self._openable -= 1

    def nodes_for(self, group: int, units: int) -> NodeUnits | None:
        """Nodes for this many units of the group; None if this style finds none."""
        for nodes in self._partitions(group, units):
            found = self._within(group, units, nodes)
            if found is not None:
                return found
        return None

    def _partitions(self, group: int, units: int) -> list[Sequence[int]]:
        """Sets of nodes the group may choose from, the tightest that has room first."""
        partitions = self._problem.partitions[group]
        if len(partitions) == 1:
            return partitions
        room = [sum(min(units, self._room(group, node)) for node in nodes) for nodes in partitions]
        order = sorted(range(len(partitions)), key=lambda i: (room[i] < units, room[i], i))
        return [partitions[i] for i in order]

    def _room(self, group: int, node: int) -> int:
        if self._guests[node] and self._guests[node] & _mask(self._problem.groups[group].foes):
            return 0
        return self._problem.fit(group, self.left[node])

    def _within(self, group: int, units: int, nodes: Sequence[int]) -> NodeUnits | None:
        demand = self._problem.groups[group]
        rooms = self._rooms(group, units, nodes, demand.step)
        if demand.spread_over:
            return self._spread(group, units, nodes, rooms)
        if demand.units_per_node:
            return self._blocks(units, demand.units_per_node, rooms)
        if not self._problem.needs[group][0]:
            return self._evenly(units, rooms)
        return self._fewest(units, rooms)

    def _rooms(self, group: int, units: int, nodes: Sequence[int], least: int) -> dict[int, int]:
        """The nodes that can take units of the group, and how many."""
        foes = _mask(self._problem.groups[group].foes)
        fit: dict[Amounts, int] = {}
        rooms = {}
        for node in nodes:
            if (self._is_open[node] or self._openable) and not (self._guests[node] & foes):
                left = self.left[node]
                room = fit.get(left)
                if room is None:
                    room = fit[left] = min(units, self._problem.fit(group, left))
                if room >= least:
                    rooms[node] = room
        return rooms

    def _blocks(self, units: int, size: int, rooms: dict[int, int]) -> NodeUnits | None:
        """`size` units on each of some nodes."""
        key: Callable[[int], tuple[float, ...]]
        if self._style.prefers_room:
            key = lambda n: (-rooms[n], self._rest(n), not self._is_open[n], n)  # noqa: E731
        else:
            key = lambda n: (not self._is_open[n], rooms[n], n)  # noqa: E731
        chosen = self._opened(sorted(rooms, key=key), units // size)
        return [(node, size) for node in chosen] if len(chosen) == units // size else None

    def _rest(self, node: int) -> int:
        return -self.left[node][0] if self._style.is_careful else 0

    def _opened(self, order: Sequence[int], count: int) -> list[int]:
        """The first `count` of them, without opening more nodes than the job may use."""
        chosen: list[int] = []
        openable = self._openable
        for node in order:
            if len(chosen) == count:
                break
            if not self._is_open[node]:
                if not openable:
                    continue
                openable -= 1
            chosen.append(node)
        return chosen

    def _fewest(self, units: int, rooms: dict[int, int]) -> NodeUnits | None:
        """On as few nodes as possible: the roomiest first, and the remainder where it fits tightest."""
        ascending = self._opened(sorted(rooms, key=lambda n: (-rooms[n], not self._is_open[n], n)), len(rooms))[::-1]
        sizes = [rooms[node] for node in ascending]
        found: NodeUnits = []
        while units and ascending:
            fits = bisect.bisect_left(sizes, units)
            index = fits if fits < len(sizes) else len(sizes) - 1
            if fits < len(sizes):  # of equally tight ones, the one that comes first
                index = bisect.bisect_right(sizes, sizes[fits]) - 1
            node, size = ascending.pop(index), sizes.pop(index)
            found.append((node, min(size, units)))
            units -= min(size, units)
        return None if units else found

    def _evenly(self, units: int, rooms: dict[int, int]) -> NodeUnits | None:
        """Over the nodes in use, as evenly as their room allows; over more if they have too little."""
        used = [node for node in rooms if self._guests[node]]
        if sum(rooms[node] for node in used) < units:
            used = self._opened(sorted(rooms, key=lambda n: (not self._guests[n], -rooms[n], n)), len(rooms))
        found: NodeUnits = []
        for done, node in enumerate(sorted(used, key=lambda n: (rooms[n], n))):
            share = min(rooms[node], -(-units // (len(used) - done)))
            if share:
                found.append((node, share))
                units -= share
        return None if units else found

    def _spread(self, group: int, units: int, nodes: Sequence[int], rooms: dict[int, int]) -> NodeUnits | None:
        """Each step to the label value with the fewest units so far, and there to the node with the fewest."""
        demand, problem = self._problem.groups[group], self._problem
        step, keys = demand.step, demand.spread_over
        caps = problem.spread_caps(group, nodes, units)
        places: dict[tuple[str, ...], list[_Candidate]] = {}
        for node, room in rooms.items():
            where = tuple(problem.nodes[node].labels[key] for key in keys)
            places.setdefault(where, []).append((not self._is_open[node], 0, -room, node))
        for candidates in places.values():
            heapq.heapify(candidates)
        counts: dict[tuple[str, str], int] = defaultdict(int)
        taken: dict[int, int] = {}
        openable = self._openable
        heap = [((0,) * len(keys), candidates[0], where) for where, candidates in places.items()]
        heapq.heapify(heap)
        while units and heap:
            seen, (is_new, has, room, node), where = heapq.heappop(heap)
            now = tuple(counts[at] for at in zip(keys, where, strict=True))
            if any(count + step > caps[key] for key, count in zip(keys, now, strict=True)) or (is_new and not openable):
                continue
            if now != seen:
                heapq.heappush(heap, (now, places[where][0], where))
                continue
            openable -= is_new
            taken[node] = has + step
            units -= step
            for at in zip(keys, where, strict=True):
                counts[at] += step
            if demand.units_per_node or has + 2 * step > -room:
                heapq.heappop(places[where])
            else:
                heapq.heapreplace(places[where], (False, has + step, room, node))
            if places[where]:
                heapq.heappush(heap, (tuple(count + step for count in now), places[where][0], where))
        return None if units else list(taken.items())


def _mask(groups: frozenset[int]) -> int:
    return sum(1 << group for group in groups)
