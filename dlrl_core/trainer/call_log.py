"""CallLog: what the trainer called and how long it waited, for progress, diagnosis and the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrl_core.graph import EdgeKind, RoleGraph
from dlrl_core.roles import RoleType


@dataclass(slots=True)
class CallLog:
    """Counts and waiting time for each 'role.method'. Written on every call, so it only counts."""

    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    graph: RoleGraph = field(default_factory=RoleGraph)
    last: str | None = None
    current: str | None = None
    _last_role: RoleType | None = None

    def began(self, role: RoleType, name: str) -> None:
        """A call is on its way; `name` is 'role.method'."""
        self.counts[name] = self.counts.get(name, 0) + 1
        self.last = self.current = name
        if self._last_role is not role:
            if self._last_role is not None:
                self.graph.saw(self._last_role, role, EdgeKind.ORDER)
            self._last_role = role

    def waited(self, name: str, seconds: float) -> None:
        """The trainer waited this long for the call's results."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.current = None
