"""Finding a placement: the greedy ways first, then an exact search with a limit; with fewer units of elastic groups.

The search places the groups one after the other too, but tries every way to distribute a group. Nodes that do not
differ are tried once, and a situation that failed before is not entered again.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from dlrl_core.plan.greedy import STYLES, order_of, place_greedily
from dlrl_core.plan.problem import Amounts, NodeUnits, Placement, Problem, Stuck
from dlrl_core.plan.spares import can_be_replaced, choose_spares

Counts = tuple[int, ...]
"""Units of each host group."""

_MOST_TRIED = 64
"""At most this many combinations of counts are tried one by one."""
_MOST_NODES = 400
_MOST_WORK = 6_000_000
"""Steps times nodes: keeps a search that finds nothing well below a second."""


def solve(problem: Problem) -> Placement | Stuck:
    """A placement of all units; else with as many of the elastic groups as fit; else the group that does not fit."""
    full, fewest = solve_for(problem, problem.wanted), _fewest(problem)
    if isinstance(full, Placement) or fewest == problem.wanted:
        return full
    least, between = solve_for(problem, fewest), _first_between(problem)
    if between is not None or isinstance(least, Stuck):
        return between or least
    return _raised(problem, fewest, least)


def fits(problem: Problem) -> bool:
    """Whether a placement exists, be it with the fewest units of the elastic groups."""
    ends = {_fewest(problem): None, problem.wanted: None}
    return any(isinstance(solve_for(problem, one), Placement) for one in ends) or _first_between(problem) is not None


def solve_for(problem: Problem, units: Counts, *, patience: int | None = None) -> Placement | Stuck:
    """A placement of exactly these counts."""
    stuck = _impossible(problem, units)
    if stuck is not None:
        return stuck
    tried = []
    for style in STYLES:
        found = place_greedily(problem, units, style)
        if isinstance(found, Placement):
            return found
        tried.append(found)
    furthest = max(tried, key=lambda one: (one.group is None, len(one.others)))
    try:
        searched = search(problem, units, patience or problem.patience)
    except PatienceLostError:
        return furthest
    return searched or Stuck(group=furthest.group, others=furthest.others, used=furthest.used, is_certain=True)


def _impossible(problem: Problem, units: Counts) -> Stuck | None:
    """What is impossible at first sight: a group that would not fit alone, or more of a resource than there is."""
    if problem.spare_nodes and not problem.most_nodes:
        return Stuck(group=None, used=1, is_certain=True)
    for index, count in enumerate(units):
        if count > problem.rooms[index]:
            return Stuck(group=index, is_certain=True)
    order = order_of(problem)
    for resource, have in enumerate(problem.largest):
        needed = 0
        for place, index in enumerate(order):
            needed += units[index] * problem.needs[index][resource]
            if needed > have:
                return Stuck(group=index, others=tuple(order[:place]), resource=resource, is_certain=True)
    return None


def _fewest(problem: Problem) -> Counts:
    return tuple(group.min_units for group in problem.groups)


def _first_between(problem: Problem) -> Placement | None:
    """The best counts between the fewest and the wanted ones, for jobs where fewer may not fit though more do.

    Spreading fewer units is a stricter rule, and so is a use for all spare nodes.
    """
    elastic = [group for group in problem.groups if group.min_units < group.units]
    if not elastic or not (problem.spare_nodes or any(group.spread_over for group in elastic)):
        return None
    counts = _between(problem)
    tried = (solve_for(problem, one, patience=problem.patience // len(counts)) for one in counts)
    return next((found for found in tried if isinstance(found, Placement)), None)


def _between(problem: Problem) -> list[Counts]:
    """All other counts that the job accepts, the best first; none if there are too many."""
    ranges = [range(group.units, group.min_units - 1, -group.step) for group in problem.groups]
    if math.prod(map(len, ranges)) > _MOST_TRIED:
        return []

    def worst_off(counts: Counts) -> float:
        return min(
            (count - group.min_units) / (group.units - group.min_units)
            for count, group in zip(counts, problem.groups, strict=True)
            if group.units > group.min_units
        )

    others = set(itertools.product(*ranges)) - {problem.wanted, _fewest(problem)}
    return sorted(others, key=lambda counts: (-worst_off(counts), [-count for count in counts]))


def _raised(problem: Problem, fewest: Counts, placement: Placement) -> Placement:
    """As many units of the elastic groups as fit: all raised in the same proportion first, then each by itself."""
    spans = [wanted - least for wanted, least in zip(problem.wanted, fewest, strict=True)]

    def together(level: int) -> Counts:
        return tuple(
            least + span * level // max(spans) // group.step * group.step
            for least, span, group in zip(fewest, spans, problem.groups, strict=True)
        )

    best = _highest(problem, range(1, max(spans)), together, placement)
    for index in range(len(problem.groups)):
        best = _raised_alone(problem, index, best)
    return best


def _raised_alone(problem: Problem, index: int, best: Placement) -> Placement:
    before, now, after = best.units[:index], best.units[index], best.units[index + 1 :]
    step = problem.groups[index].step
    levels = range(now + step, problem.wanted[index] + 1, step)
    return _highest(problem, levels, lambda count: (*before, count, *after), best)


def _highest(problem: Problem, levels: range, counts: Callable[[int], Counts], known: Placement) -> Placement:
    """The placement of the highest level whose counts have one; `known` if none has.

    Found by halving. The highest level that is not impossible at first sight is tried first: mostly it fits.
    """
    high = bisect.bisect_left(levels, True, key=lambda level: _impossible(problem, counts(level)) is not None)
    low, middle = 0, high - 1
    while low < high:
        found = solve_for(problem, counts(levels[middle]), patience=problem.patience // 32)
        if isinstance(found, Placement):
            known, low = found, middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return known


class PatienceLostError(Exception):
    """The search was given up; a placement may exist."""


def search(problem: Problem, units: Sequence[int], patience: int) -> Placement | None:
    """A placement, or None if none exists. Raises PatienceLostError after this many steps."""
    if len(problem.nodes) > _MOST_NODES:
        raise PatienceLostError
    return _Search(problem, units, patience).place(0)


class _Search:
    def __init__(self, problem: Problem, units: Sequence[int], patience: int) -> None:
        self.problem = problem
        self._units = units
        self._order = order_of(problem)
        self._left: list[Amounts] = list(problem.caps)
        self.guests = [0] * len(problem.nodes)
        self._node_units: list[NodeUnits] = [[] for _ in units]
        self._hopeless: set[object] = set()
        self._rooms: dict[tuple[int, int], int] = {}
        self._cost = 4 + len(problem.nodes) * (4 if problem.spare_nodes else 1)
        """Steps that one look at all nodes costs."""
        self._patience = min(patience, _MOST_WORK // max(1, len(problem.nodes)))
        keys = {key for group in problem.groups for key in (*group.labels, *group.spread_over, *group.pack_into)}
        self._labels = [tuple(node.labels.get(key) for key in sorted(keys)) for node in problem.nodes]
        self._numbers: dict[object, int] = {}
        self.states = [self._state(node) for node in range(len(problem.nodes))]
        """A number for the state of each node: nodes with the same number are interchangeable."""

    def place(self, depth: int) -> Placement | None:
        """Place the groups from this one on."""
        situation = (depth, tuple(sorted(self.states)))
        if situation in self._hopeless:
            return None
        self.step(self._cost)
        found = self._placed() if depth == len(self._order) else self._tried(depth)
        if found is None:
            self._hopeless.add(situation)
        return found

    def _placed(self) -> Placement | None:
        spares = choose_spares(self.problem, self._node_units) if self.problem.spare_nodes else ()
        if spares is None:
            return None
        node_units = tuple(list(units) for units in self._node_units)
        return Placement(units=tuple(self._units), node_units=node_units, spares=spares)

    def _tried(self, depth: int) -> Placement | None:
        if not all(map(self._has_room, self._order[depth:])):
            return None
        if self.problem.spare_nodes and not can_be_replaced(self.problem, self._node_units):
            return None
        group = self._order[depth]
        for way in self._ways(group):
            self._put(group, way, 1)
            found = self.place(depth + 1)
            if found is not None:
                return found
            self._put(group, way, -1)
        return None

    def _state(self, node: int) -> int:
        state = (self._left[node], self.guests[node], self._labels[node], self.problem.caps[node])
        return self._numbers.setdefault(state, len(self._numbers))

    def _put(self, group: int, way: NodeUnits, sign: int) -> None:
        need = self.problem.needs[group]
        for node, units in way:
            self._left[node] = tuple(
                have - sign * units * one for have, one in zip(self._left[node], need, strict=True)
            )
            self.guests[node] ^= 1 << group
            self.states[node] = self._state(node)
        self._node_units[group] = sorted(way) if sign > 0 else []

    def _ways(self, group: int) -> Iterator[NodeUnits]:
        """All ways to place the group now."""
        problem, units = self.problem, self._units[group]
        for nodes in problem.partitions[group]:
            rooms = {node: room for node in nodes if (room := self._room(group, node))}
            order = sorted(rooms, key=lambda n: (not self.guests[n], -rooms[n], self.states[n], n))
            caps = problem.spread_caps(group, nodes, units)
            yield from _Distribution(self, group, order, rooms, caps).ways(0, units, self._openable())

    def _openable(self) -> int:
        return self.problem.most_nodes - sum(guests > 0 for guests in self.guests)

    def _room(self, group: int, node: int) -> int:
        """How many units of the group the node takes now."""
        key = (group, self.states[node])
        if (room := self._rooms.get(key)) is None:
            demand, problem = self.problem.groups[group], self.problem
            is_free = not any(self.guests[node] >> foe & 1 for foe in demand.foes)
            room = min(self._units[group], problem.fit(group, self._left[node])) if is_free else 0
            if demand.units_per_node:
                room = demand.units_per_node if room >= demand.units_per_node else 0
            self._rooms[key] = room
        return room

    def _has_room(self, group: int) -> bool:
        """Whether the group might fit if it came next; False is certain."""
        openable = self._openable()
        for nodes in self.problem.partitions[group]:
            used = sum(self._room(group, node) for node in nodes if self.guests[node])
            new = sorted((self._room(group, node) for node in nodes if not self.guests[node]), reverse=True)
            if used + sum(new[:openable]) >= self._units[group]:
                return True
        return False

    def step(self, count: int = 1) -> None:
        self._patience -= count
        if self._patience < 0:
            raise PatienceLostError


class _Distribution:
    """All ways to distribute a group's units over these nodes."""

    def __init__(
        self, search: _Search, group: int, order: list[int], rooms: dict[int, int], caps: dict[str, int]
    ) -> None:
        self._search = search
        problem = search.problem
        self._nodes = problem.nodes
        self._order = order
        self._rooms = rooms
        self._caps = caps
        self._step = problem.groups[group].step
        self._is_block = problem.groups[group].units_per_node is not None
        self._rest = [0] * (len(order) + 1)
        for index in range(len(order) - 1, -1, -1):
            self._rest[index] = self._rest[index + 1] + rooms[order[index]]
        self._counts: dict[int, int] = {}
        self._spread: dict[tuple[str, str], int] = {}

    def ways(self, index: int, units: int, openable: int) -> Iterator[NodeUnits]:
        self._search.step()
        if not units:
            yield [(node, count) for node, count in self._counts.items() if count]
            return
        if self._rest[index] < units:
            return
        node = self._order[index]
        for count in self._choices(index, units, can_open=openable > 0):
            self._take(node, count)
            is_opened = count > 0 and not self._search.guests[node]
            yield from self.ways(index + 1, units - count, openable - is_opened)
            self._take(node, -count)

    def _choices(self, index: int, units: int, *, can_open: bool) -> list[int]:
        """How many units the node may get, the most first; never more than a node before it that is the same."""
        node = self._order[index]
        most = min(units, self._rooms[node])
        if index and self._search.states[node] == self._search.states[self._order[index - 1]]:
            most = min(most, self._counts.get(self._order[index - 1], 0))
        for key, cap in self._caps.items():
            most = min(most, cap - self._spread.get((key, self._nodes[node].labels[key]), 0))
        if not can_open and not self._search.guests[node]:
            most = 0
        if self._is_block:
            return [self._step, 0] if most >= self._step else [0]
        return list(range(max(most, 0), -1, -1))

    def _take(self, node: int, count: int) -> None:
        self._counts[node] = self._counts.get(node, 0) + count
        for key in self._caps:
            place = (key, self._nodes[node].labels[key])
            self._spread[place] = self._spread.get(place, 0) + count
