"""Looking for a placement by trying, where the quick ways found none. Exact, as far as its patience goes.

Groups are placed one after the other as before, but every way to distribute a group is tried. Nodes that do not
differ are tried once, and a situation that led nowhere is not entered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlrl_core.plan.greedy import order_of
from dlrl_core.plan.problem import Amounts, Placement, Problem, Seats
from dlrl_core.plan.spares import can_be_replaced, choose_spares

_MOST_NODES = 400
_MOST_WORK = 6_000_000
"""Steps times nodes: keeps a search that finds nothing well below a second."""


class PatienceLostError(Exception):
    """The search was given up; whether there is a placement stays open."""


def search(problem: Problem, units: Sequence[int], patience: int) -> Placement | None:
    """A placement, or None if there is none. Raises PatienceLostError after so many steps."""
    if len(problem.nodes) > _MOST_NODES:
        raise PatienceLostError
    return _Search(problem, units, patience).run()


class _Search:
    def __init__(self, problem: Problem, units: Sequence[int], patience: int) -> None:
        self._problem = problem
        self._units = units
        self._order = order_of(problem)
        self._left: list[Amounts] = list(problem.caps)
        self._guests = [0] * len(problem.nodes)
        self._seats: list[Seats] = [[] for _ in units]
        self._hopeless: set[object] = set()
        self._rooms: dict[tuple[int, int], int] = {}
        self._cost = 4 + len(problem.nodes) * (4 if problem.spare_nodes else 1)
        """What it takes to look at all nodes once, in steps."""
        self._patience = min(patience, _MOST_WORK // max(1, len(problem.nodes)))
        keys = {key for group in problem.groups for key in (*group.labels, *group.spread_over, *group.pack_into)}
        self._labels = [tuple(node.labels.get(key) for key in sorted(keys)) for node in problem.nodes]
        self._numbers: dict[object, int] = {}
        self._states = [self._state(node) for node in range(len(problem.nodes))]
        """Of each node, a number for all that matters of it: two with the same are interchangeable."""

    def run(self) -> Placement | None:
        return self._place(0)

    def _place(self, depth: int) -> Placement | None:
        """Place the groups from this one on."""
        situation = (depth, tuple(sorted(self._states)))
        if situation in self._hopeless:
            return None
        self.step(self._cost)
        found = self._placed() if depth == len(self._order) else self._tried(depth)
        if found is None:
            self._hopeless.add(situation)
        return found

    def _placed(self) -> Placement | None:
        spares = choose_spares(self._problem, self._seats)
        if spares is None:
            return None
        seats = tuple(list(seats) for seats in self._seats)
        return Placement(units=tuple(self._units), seats=seats, spares=spares)

    def _tried(self, depth: int) -> Placement | None:
        if not all(map(self._has_room, self._order[depth:])) or not can_be_replaced(self._problem, self._seats):
            return None
        group = self._order[depth]
        for seats in self._ways(group):
            self._sit(group, seats, 1)
            found = self._place(depth + 1)
            if found is not None:
                return found
            self._sit(group, seats, -1)
        return None

    def _state(self, node: int) -> int:
        state = (self._left[node], self._guests[node], self._labels[node], self._problem.caps[node])
        return self._numbers.setdefault(state, len(self._numbers))

    def _sit(self, group: int, seats: Seats, sign: int) -> None:
        need = self._problem.needs[group]
        for node, units in seats:
            self._left[node] = tuple(
                have - sign * units * one for have, one in zip(self._left[node], need, strict=True)
            )
            self._guests[node] ^= 1 << group
            self._states[node] = self._state(node)
        self._seats[group] = sorted(seats) if sign > 0 else []

    def _ways(self, group: int) -> Iterator[Seats]:
        """All ways to seat the group now."""
        problem, units = self._problem, self._units[group]
        for nodes in problem.partitions[group]:
            rooms = {node: room for node in nodes if (room := self._room(group, node))}
            order = sorted(rooms, key=lambda n: (not self._guests[n], -rooms[n], self._states[n], n))
            caps = problem.spread_caps(group, nodes, units)
            yield from _Distribution(self, group, order, rooms, caps).ways(0, units, self._openable())

    def _openable(self) -> int:
        return self._problem.most_nodes - sum(guests > 0 for guests in self._guests)

    def _room(self, group: int, node: int) -> int:
        """How many units of the group the node takes now."""
        key = (group, self._states[node])
        if (room := self._rooms.get(key)) is None:
            demand, problem = self._problem.groups[group], self._problem
            is_free = not any(self._guests[node] >> foe & 1 for foe in demand.foes)
            room = min(self._units[group], problem.fit(group, self._left[node])) if is_free else 0
            if demand.units_per_node:
                room = demand.units_per_node if room >= demand.units_per_node else 0
            self._rooms[key] = room
        return room

    def _has_room(self, group: int) -> bool:
        """Whether the group would fit now if it came next; a bound only."""
        openable = self._openable()
        for nodes in self._problem.partitions[group]:
            used = sum(self._room(group, node) for node in nodes if self._guests[node])
            new = sorted((self._room(group, node) for node in nodes if not self._guests[node]), reverse=True)
            if used + sum(new[:openable]) >= self._units[group]:
                return True
        return False

    def step(self, count: int = 1) -> None:
        self._patience -= count
        if self._patience < 0:
            raise PatienceLostError

    def same(self, one: int, other: int) -> bool:
        return self._states[one] == self._states[other]

    def is_new(self, node: int) -> bool:
        return not self._guests[node]


class _Distribution:
    """All ways to distribute a group's units over these nodes."""

    def __init__(
        self, search: _Search, group: int, order: list[int], rooms: dict[int, int], caps: dict[str, int]
    ) -> None:
        self._search = search
        self._nodes = search._problem.nodes
        self._order = order
        self._rooms = rooms
        self._caps = caps
        self._step = search._problem.groups[group].step
        self._is_block = search._problem.groups[group].units_per_node is not None
        self._rest = [0] * (len(order) + 1)
        for index in range(len(order) - 1, -1, -1):
            self._rest[index] = self._rest[index + 1] + rooms[order[index]]
        self._counts: dict[int, int] = {}
        self._spread: dict[tuple[str, str], int] = {}

    def ways(self, index: int, units: int, openable: int) -> Iterator[Seats]:
        self._search.step()
        if not units:
            yield [(node, count) for node, count in self._counts.items() if count]
            return
        if self._rest[index] < units:
            return
        node = self._order[index]
        for count in self._choices(index, units, can_open=openable > 0):
            self._take(node, count)
            is_opened = count > 0 and self._search.is_new(node)
            yield from self.ways(index + 1, units - count, openable - is_opened)
            self._take(node, -count)

    def _choices(self, index: int, units: int, *, can_open: bool) -> list[int]:
        """How many units the node may get, the most first; never more than a node before it that is the same."""
        node = self._order[index]
        most = min(units, self._rooms[node])
        if index and self._search.same(node, self._order[index - 1]):
            most = min(most, self._counts.get(self._order[index - 1], 0))
        for key, cap in self._caps.items():
            most = min(most, cap - self._spread.get((key, self._nodes[node].labels[key]), 0))
        if not can_open and self._search.is_new(node):
            most = 0
        if self._is_block:
            return [self._step, 0] if most >= self._step else [0]
        return list(range(max(most, 0), -1, -1))

    def _take(self, node: int, count: int) -> None:
        self._counts[node] = self._counts.get(node, 0) + count
        for key in self._caps:
            place = (key, self._nodes[node].labels[key])
            self._spread[place] = self._spread.get(place, 0) + count
