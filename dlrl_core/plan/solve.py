"""From the planner's question to its answer: the quick ways first, then the search; fewer of what is elastic."""

from __future__ import annotations

from collections.abc import Sequence

from dlrl_core.plan.greedy import STYLES, order_of, place_greedily
from dlrl_core.plan.problem import Placement, Problem, Stuck
from dlrl_core.plan.search import PatienceLostError, search


def solve(problem: Problem) -> Placement | Stuck:
    """A placement with all that is wanted; else with as much of the elastic groups as fits; else where it is stuck."""
    full = solve_for(problem, problem.wanted)
    fewest = tuple(group.min_units for group in problem.groups)
    if isinstance(full, Placement) or fewest == problem.wanted:
        return full
    least = solve_for(problem, fewest)
    return least if isinstance(least, Stuck) else _raised(problem, fewest, least)


def solve_for(problem: Problem, units: Sequence[int]) -> Placement | Stuck:
    """A placement of exactly these numbers of units."""
    stuck = _impossible(problem, units)
    if stuck is not None:
        return stuck
    tried = []
    for style in STYLES:
        found = place_greedily(problem, units, style)
        if isinstance(found, Placement):
            return found
        tried.append(found)
    order = [*order_of(problem), None]
    furthest = max(tried, key=lambda one: order.index(one.group))
    try:
        searched = search(problem, units)
    except PatienceLostError:
        return furthest
    return searched or Stuck(group=furthest.group, left=furthest.left, used=furthest.used, is_certain=True)


def _impossible(problem: Problem, units: Sequence[int]) -> Stuck | None:
    """What can be seen at once: a group that would not fit if it were alone, or more than all nodes together have."""
    for index, count in enumerate(units):
        if not _fits_alone(problem, index, count):
            return Stuck(group=index, left=None, used=0, is_certain=True)
    for resource in range(len(problem.resources)):
        largest = sorted((cap[resource] for cap in problem.caps), reverse=True)[: problem.node_num]
        needed = 0
        for index in order_of(problem):
            needed += units[index] * problem.needs[index][resource]
            if needed > sum(largest):
                return Stuck(group=index, left=None, used=0, is_certain=True)
    if len(problem.nodes) < 1 + problem.spare_nodes:
        return Stuck(group=None, left=None, used=1, is_certain=True)
    return None


def _fits_alone(problem: Problem, group: int, units: int) -> bool:
    """Whether the group has room on the nodes it may use, if it were the only one. A bound only: it may be spread."""
    step = problem.groups[group].units_per_node
    for nodes in problem.partitions[group]:
        rooms = sorted((min(units, problem.fit(group, problem.caps[node])) for node in nodes), reverse=True)
        usable = rooms[: problem.node_num]
        if step and sum(room >= step for room in usable) * step >= units:
            return True
        if not step and sum(usable) >= units:
            return True
    return False


def _raised(problem: Problem, fewest: Sequence[int], placement: Placement) -> Placement:
    """As much of the elastic groups as fits: all of them in the same proportion first, then each in its order."""
    spans = [wanted - least for wanted, least in zip(problem.wanted, fewest, strict=True)]

    def together(level: int) -> tuple[int, ...]:
        return tuple(
            least + span * level // max(spans) // group.step * group.step
            for least, span, group in zip(fewest, spans, problem.groups, strict=True)
        )

    best = _highest(problem, [together(level) for level in range(1, max(spans))], placement)
    for index, group in enumerate(problem.groups):
        above = range(best.units[index] + group.step, problem.wanted[index] + 1, group.step)
        steps = [(*best.units[:index], count, *best.units[index + 1 :]) for count in above]
        best = _highest(problem, steps, best)
    return best


def _highest(problem: Problem, rising: Sequence[tuple[int, ...]], known: Placement) -> Placement:
    """The placement of the last of these rising counts that has one, by halving; `known` if none has."""
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        found = solve_for(problem, rising[middle])
        if isinstance(found, Placement):
            known, low = found, middle + 1
        else:
            high = middle
    return known
