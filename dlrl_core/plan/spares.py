"""Choosing the nodes that are held back: each node of the plan must be replaceable by one of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dlrl_core.plan.problem import Amounts, NodeUnits, Problem, Spare

_MOST_TRIES = 2_000

_Kind = tuple[Amounts, tuple[tuple[int, int | None], ...]]
"""What a node of the plan needs: amounts; and the host groups on it, each with the partition it chose."""


def choose_spares(problem: Problem, node_units: Sequence[NodeUnits]) -> tuple[Spare, ...] | None:
    """As many spare nodes as the job asks for; None if the unused nodes can't replace all used ones."""
    kinds = _kinds(problem, node_units)
    covered = {node: frozenset(k for k in kinds if _can_replace(problem, node, k)) for node in _unused(problem, kinds)}
    chosen = _choose(problem, covered, set(kinds))
    return None if chosen is None else tuple(_spare(node, covered[node], kinds) for node in sorted(chosen))


def can_be_replaced(problem: Problem, node_units: Sequence[NodeUnits]) -> bool:
    """Whether each node used so far could be replaced by an unused one; if not, placing more groups can't help."""
    kinds = _kinds(problem, node_units)
    unused = _unused(problem, kinds)
    return all(any(_can_replace(problem, node, kind) for node in unused) for kind in kinds)


def _kinds(problem: Problem, node_units: Sequence[NodeUnits]) -> dict[_Kind, list[int]]:
    """The nodes of the plan, by what they need."""
    needs = problem.amounts_on_nodes(node_units)
    guests: dict[int, list[tuple[int, int | None]]] = {}
    for group, units in enumerate(node_units):
        for node, _ in units:
            guests.setdefault(node, []).append((group, problem.partition_of(group, node)))
    kinds: dict[_Kind, list[int]] = {}
    for node in sorted(needs):
        kinds.setdefault((needs[node], tuple(guests[node])), []).append(node)
    return kinds


def _unused(problem: Problem, kinds: Mapping[_Kind, list[int]]) -> list[int]:
    used = {node for nodes in kinds.values() for node in nodes}
    return [node for node in range(len(problem.nodes)) if node not in used]


def _can_replace(problem: Problem, node: int, kind: _Kind) -> bool:
    amounts, guests = kind
    return all(have >= need for have, need in zip(problem.caps[node], amounts, strict=True)) and all(
        problem.partition_of(group, node) == partition for group, partition in guests
    )


def _choose(problem: Problem, covered: dict[int, frozenset[_Kind]], kinds: set[_Kind]) -> list[int] | None:
    """Nodes that together replace all kinds: those that replace the most first, and of these the smallest."""
    able = sorted((node for node in covered if covered[node]), key=lambda n: (-len(covered[n]), problem.caps[n], n))
    if len(able) < problem.spare_nodes:
        return None
    tightest: dict[frozenset[_Kind], int] = {}
    for node in able:
        tightest.setdefault(covered[node], node)
    cover = _cover(list(tightest), frozenset(kinds), problem.spare_nodes, itertools.count())
    if cover is None:
        return None
    chosen = {tightest[one] for one in cover}
    return [*chosen, *itertools.islice((n for n in able if n not in chosen), problem.spare_nodes - len(chosen))]


def _cover(
    choices: list[frozenset[_Kind]], missing: frozenset[_Kind], most: int, tries: itertools.count[int]
) -> list[frozenset[_Kind]] | None:
    """At most `most` of the choices that together have all missing kinds; None if none was found in the tries."""
    if not missing:
        return []
    if not most or next(tries) > _MOST_TRIES:
        return None
    rarest = min(missing, key=lambda kind: (sum(kind in choice for choice in choices), kind))
    for choice in sorted((one for one in choices if rarest in one), key=lambda one: -len(one & missing)):
        rest = _cover(choices, missing - choice, most - 1, tries)
        if rest is not None:
            return [choice, *rest]
    return None


def _spare(node: int, covers: frozenset[_Kind], kinds: dict[_Kind, list[int]]) -> Spare:
    return Spare(
        node=node,
        amounts=tuple(max(amounts) for amounts in zip(*(kind[0] for kind in covers), strict=True)),
        replaces=tuple(sorted(used for kind in covers for used in kinds[kind])),
    )
