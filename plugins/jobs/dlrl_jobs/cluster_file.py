"""The cluster file: a cluster that is only described, node by node, in YAML.

nodes:
  - {count: 4, resources: {GPU: 8, CPU: 96}, labels: {rack: r1}}
  - {name: small, address: 10.0.0.9, resources: {GPU: 4}}
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from dlrl_core.errors import SpecError
from dlrl_core.spec.config_value import read_yaml
from dlrl_core.spec.frozen import Frozen
from dlrl_core.spec.job_spec import Amount, Count, Text
from dlrl_core.spec.validation import said, validated

if TYPE_CHECKING:
    from dlrl_core.plan import ClusterView
    from dlrl_core.spec import JobSpec

MOST_NODES = 1_000_000
"""More of them is a mistake, and would take all memory."""


def _word(value: object) -> str:
    """Text, or a whole number as text; YAML reads a bare yes or 1.0 as something that can be written in many ways."""
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    raise PydanticCustomError("predicate", "is {said}; it must be text, in quotes if need be", {"said": repr(value)})


Word = Annotated[str, BeforeValidator(_word)]


class NodeEntry(Frozen):
    """One entry of the file: `count` equal nodes."""

    count: Count = 1
    resources: dict[Text, Amount] = Field(min_length=1, examples=[{"GPU": 8, "CPU": 96}])
    labels: dict[Word, Word] = Field({}, examples=[{"rack": "r1"}])
    name: Word | None = None
    address: Word | None = None


class ClusterFile(Frozen):
    """What a cluster file says."""

    nodes: tuple[NodeEntry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> ClusterFile:
        """Raises SpecError with everything that is wrong with the file."""
        plain = said(read_yaml(path))
        if isinstance(nodes := plain.get("nodes"), list):
            plain["nodes"] = [said(entry) if isinstance(entry, dict) else entry for entry in nodes]
        found, problems = validated(cls, plain, f"'{path}'")
        texts = [problem.text for problem in problems]
        if not found.nodes and not texts:
            texts.append(f"'{path}' needs 'nodes', a list with an entry for each kind of node")
        texts += found._problems()
        if texts:
            raise SpecError(texts)
        return found

    def _problems(self) -> list[str]:
        total = sum(entry.count for entry in self.nodes)
        if total > MOST_NODES:
            return [f"the cluster has {total} nodes; at most {MOST_NODES} can be planned on"]
        shared = [entry for entry in self.nodes if entry.address is not None and entry.count > 1]
        times = Counter(name for names in self._names() for name in names)
        doubled = {name: count for name, count in times.items() if count > 1}
        return [
            *(f"{one.count} nodes have the address '{one.address}'; an address is for one node" for one in shared),
            *(f"{count} nodes are named '{name}'; give each another name" for name, count in doubled.items()),
        ]

    def _names(self) -> list[list[str]]:
        """For each entry, the names of its nodes; those without a name are called by their number."""
        found, first = [], 0
        for entry in self.nodes:
            numbers = range(entry.count)
            if entry.name is None:
                found.append([f"node-{first + number}" for number in numbers])
            else:
                found.append([entry.name] if entry.count == 1 else [f"{entry.name}-{number}" for number in numbers])
            first += entry.count
        return found

    def view(self, spec: JobSpec) -> ClusterView:
        """The cluster for this job.

        There are enough CPUs where none are said, and enough of a resource that the file nowhere names; devices are
        never more than said.
        """
        from dlrl_core.plan import ClusterView, NodeView

        named = {name for entry in self.nodes for name in entry.resources}
        wanted = {name for request in spec.placement_requests.values() for name in request.resource}
        enough = dict.fromkeys({"CPU", *(wanted - named)} - {spec.device_type}, math.inf)
        return ClusterView(
            nodes=tuple(
                NodeView(
                    node_id=name, address=entry.address or "", free={**enough, **entry.resources}, labels=entry.labels
                )
                for entry, names in zip(self.nodes, self._names(), strict=True)
                for name in names
            )
        )
