"""From the planner's question to its answer: the quick ways first, then the search; fewer of what is elastic."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable

from dlrl_core.plan.greedy import STYLES, order_of, place_greedily
from dlrl_core.plan.problem import Placement, Problem, Stuck
from dlrl_core.plan.search import PatienceLostError, search

Counts = tuple[int, ...]
"""Units of each host group."""

_MOST_TRIED = 64
"""Counts that are all tried where a smaller one may have no place and a larger one has."""


def solve(problem: Problem) -> Placement | Stuck:
    """A placement with all that is wanted; else with as much of the elastic groups as fits; else where it is stuck."""
    full, fewest = solve_for(problem, problem.wanted), _fewest(problem)
    if isinstance(full, Placement) or fewest == problem.wanted:
        return full
    least, between = solve_for(problem, fewest), _first_between(problem)
    if between is not None or isinstance(least, Stuck):
        return between or least
    return _raised(problem, fewest, least)


def fits(problem: Problem) -> bool:
    """Whether there is a placement, with however few of the elastic groups."""
    ends = {_fewest(problem): None, problem.wanted: None}
    return any(isinstance(solve_for(problem, one), Placement) for one in ends) or _first_between(problem) is not None


def solve_for(problem: Problem, units: Counts, *, patience: int | None = None) -> Placement | Stuck:
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
    furthest = max(tried, key=lambda one: (one.group is None, len(one.others)))
    try:
        searched = search(problem, units, patience or problem.patience)
    except PatienceLostError:
        return furthest
    return searched or Stuck(group=furthest.group, others=furthest.others, used=furthest.used, is_certain=True)


def _impossible(problem: Problem, units: Counts) -> Stuck | None:
    """What can be seen at once: a group that would not fit if it were alone, or more than all nodes together have."""
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
    """The best of all counts between the fewest and what is wanted, where a smaller one may not fit and a larger does.

    To spread fewer is stricter, and so is to have a use for all spare nodes.
    """
    elastic = [group for group in problem.groups if group.min_units < group.units]
    if not elastic or not (problem.spare_nodes or any(group.spread_over for group in elastic)):
        return None
    counts = _between(problem)
    tried = (solve_for(problem, one, patience=problem.patience // len(counts)) for one in counts)
    return next((found for found in tried if isinstance(found, Placement)), None)


def _between(problem: Problem) -> list[Counts]:
    """Everything else that the job would accept, the best first; nothing if there is too much."""
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
    """As much of the elastic groups as fits: all of them in the same proportion first, then each in its order."""
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

    By halving. The highest that is not seen at once to be impossible comes first: mostly that is the one.
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
