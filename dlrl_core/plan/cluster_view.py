"""The cluster as the planner sees it: nodes, their free resources, their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node and what is free on it."""

    node_id: str
    address: str = ""
    free: Mapping[str, float] = field(default_factory=dict)
    """Ray resources that are not in use, such as {"CPU": 16, "GPU": 8}."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Ray's node labels, such as {"ray.io/accelerator-type": "H100", "rack": "r7"}."""

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.address or self.node_id


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """All living nodes, in a fixed order, so that the same view always gives the same plan."""

    nodes: tuple[NodeView, ...]

    @classmethod
    def described(
        cls, *, node_num: int, resources: Mapping[str, float], labels: Mapping[str, str] | None = None
    ) -> ClusterView:
        """A cluster that is only described: `node_num` equal nodes with these resources."""
        return cls(
            nodes=tuple(
                NodeView(node_id=f"node-{i}", free=dict(resources), labels=dict(labels or {})) for i in range(node_num)
            )
        )
