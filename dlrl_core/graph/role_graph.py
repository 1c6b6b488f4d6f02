"""RoleGraph: the edges between roles that a trainer's calls have shown."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlrl_core.roles import RoleType


class EdgeKind(enum.StrEnum):
    """How strong the evidence for an edge is."""

    ORDER = "order"
    """The second role was called after the first; results may have gone through the trainer."""
    DATA = "data"
    """Results of the first role were handed to the second by reference."""


@dataclass
class RoleGraph:
    """Directed, and cyclic as soon as a second step begins. Edges carry how often they were seen."""

    edges: dict[tuple[RoleType, RoleType, EdgeKind], int] = field(default_factory=dict)

    def saw(self, source: RoleType, target: RoleType, kind: EdgeKind) -> None:
        edge = (source, target, kind)
        self.edges[edge] = self.edges.get(edge, 0) + 1


def downstream(role: str, edges: Iterable[tuple[str, str]]) -> frozenset[str]:
    """All roles that results of this one can have reached; itself too, if they come back to it."""
    pairs = list(edges)
    reached: set[str] = set()
    frontier = {role}
    while frontier:
        frontier = {target for source, target in pairs if source in frontier} - reached
        reached |= frontier
    return frozenset(reached)
