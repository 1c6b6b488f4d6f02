"""The cluster file: a cluster that is only described, node by node, in YAML.

nodes:
  - {count: 4, resources: {GPU: 8, CPU: 96}, labels: {rack: r1}}
  - {name: small, address: 10.0.0.9, resources: {GPU: 4}}
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import SpecError

if TYPE_CHECKING:
    from dlrl_core.plan import ClusterView
    from dlrl_core.spec import JobSpec

MOST_NODES = 1_000_000
"""More of them is a mistake, and would take all memory."""
_KEYS = ("nodes",)
_NODE_KEYS = ("count", "resources", "labels", "name", "address")


@dataclass(frozen=True, kw_only=True)
class NodeEntry:
    """One entry of the file, that is checked: `count` equal nodes."""

    count: int
    resources: dict[str, float]
    labels: dict[str, str]
    name: str | None
    address: str


@dataclass(frozen=True, kw_only=True)
class ClusterFile:
    """What a cluster file says."""

    entries: tuple[NodeEntry, ...]

    @classmethod
    def read(cls, path: Path) -> ClusterFile:
        """Raises SpecError with all that is wrong with the file."""
        from dlrl_core.spec.job_spec import read_yaml

        said = read_yaml(path)
        problems = _unknown(said, _KEYS, f"'{path}'")
        nodes = said.get("nodes")
        if not isinstance(nodes, list) or not nodes:
            problems.append(f"'{path}' needs 'nodes', a list with an entry for each kind of node")
            nodes = []
        entries = [_entry(entry, f"nodes[{index}]", problems) for index, entry in enumerate(nodes)]
        found = cls(entries=tuple(entry for entry in entries if entry is not None))
        problems += found._problems()
        if problems:
            raise SpecError(problems)
        return found

    def _problems(self) -> list[str]:
        total = sum(entry.count for entry in self.entries)
        if total > MOST_NODES:
            return [f"the cluster has {total} nodes; at most {MOST_NODES} can be planned on"]
        times = Counter(name for names in self._names() for name in names)
        return [
            f"{count} nodes are named '{name}'; give each another name" for name, count in times.items() if count > 1
        ]

    def _names(self) -> list[list[str]]:
        """For each entry, the names of its nodes; those without a name are called by their number."""
        found, first = [], 0
        for entry in self.entries:
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

        named = {name for entry in self.entries for name in entry.resources}
        wanted = {name for request in spec.placement_requests.values() for name in request.resource}
        enough = dict.fromkeys({"CPU", *(wanted - named)} - {spec.device_type}, math.inf)
        return ClusterView(
            nodes=tuple(
                NodeView(node_id=name, address=entry.address, free={**enough, **entry.resources}, labels=entry.labels)
                for entry, names in zip(self.entries, self._names(), strict=True)
                for name in names
            )
        )


def _entry(said: Any, owner: str, problems: list[str]) -> NodeEntry | None:
    """What one entry says; all that is wrong with it is added to the problems."""
    if not isinstance(said, dict):
        problems.append(f"'{owner}' is a {type(said).__name__}; it must be a mapping with resources")
        return None
    problems += _unknown(said, _NODE_KEYS, f"'{owner}'")
    count = said.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.append(f"'{owner}' has count={count!r}; it must be a whole number from 1 on")
        count = 1
    if said.get("address") is not None and count > 1:
        problems.append(f"'{owner}' has count={count} and an address; an address is for one node")
    return NodeEntry(
        count=count,
        resources=_resources(said.get("resources"), owner, problems),
        labels=_labels(said.get("labels"), owner, problems),
        name=_text(said.get("name"), f"{owner}.name", problems) or None,
        address=_text(said.get("address"), f"{owner}.address", problems),
    )


def _resources(said: Any, owner: str, problems: list[str]) -> dict[str, float]:
    if not isinstance(said, dict) or not said:
        problems.append(f"'{owner}' needs 'resources', a mapping such as {{GPU: 8, CPU: 96}}")
        return {}
    for name, amount in said.items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not 0 <= amount < math.inf:
            problems.append(f"'{owner}' has resource '{name}'={amount!r}; it must be a number from 0 on")
    return {str(name): float(amount) for name, amount in said.items() if isinstance(amount, int | float)}


def _labels(said: Any, owner: str, problems: list[str]) -> dict[str, str]:
    if said is None:
        return {}
    if not isinstance(said, dict):
        problems.append(f"'{owner}.labels' is a {type(said).__name__}; it must be a mapping such as {{rack: r1}}")
        return {}
    return {str(key): _text(value, f"{owner}.labels.{key}", problems) for key, value in said.items()}


def _text(said: Any, name: str, problems: list[str]) -> str:
    """Text, or a whole number as text; YAML reads a bare yes or 1.0 as something that can be written in many ways."""
    if said is None:
        return ""
    if isinstance(said, bool) or not isinstance(said, str | int) or said == "":
        problems.append(f"'{name}' is {said!r}; it must be text, in quotes if need be")
    return str(said)


def _unknown(said: dict[str, Any], known: tuple[str, ...], owner: str) -> list[str]:
    problems = []
    for key in map(str, said):
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            problems.append(f"{owner} has the unknown key '{key}'; {hint}")
    return problems
