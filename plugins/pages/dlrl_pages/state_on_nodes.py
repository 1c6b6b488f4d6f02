"""How much committed state each node of a plan keeps, and how long the copy of a commit would take there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan

VERSIONS = 2
"""Of a rank's state, in memory at most: the commit that counts, and the next one."""
COPY_BYTES_PER_S = 2e9
"""Assumed of each rank, while all ranks of its node copy; copies to neighbour nodes and to disk come after it."""


def state_on_nodes(plan: ExecutionPlan) -> list[dict[str, Any]]:
    """A plain row for each node with state. Where a role's size is not known, neither are the sums of its nodes."""
    ranks: dict[int, dict[RoleType, list[int]]] = defaultdict(lambda: defaultdict(list))
    for workload in plan.workloads:
        if workload.role in plan.state_sizes:
            ranks[workload.node][workload.role].append(workload.rank)
    return [_row(plan, node, ranks[node]) for node in sorted(ranks)]


def _row(plan: ExecutionPlan, node: int, ranks: dict[RoleType, list[int]]) -> dict[str, Any]:
    sizes = {role: plan.state_sizes[role] for role in ranks if plan.state_sizes[role].is_known}
    on_node = {role: size.size_on(ranks[role]) for role, size in sizes.items()}
    largest = {role: max(size.size_on([rank]) for rank in ranks[role]) for role, size in sizes.items()}
    is_whole = len(sizes) == len(ranks)
    return {
        "node": plan.nodes[node].shown,
        "node_index": node,
        "rank_bytes": {str(role): size for role, size in largest.items()},
        "node_bytes": {str(role): size for role, size in on_node.items()},
        "bytes": sum(on_node.values()) if is_whole else None,
        "bytes_of_2_versions": VERSIONS * sum(on_node.values()) if is_whole else None,
        "copy_s": max(largest.values()) / COPY_BYTES_PER_S if is_whole else None,
    }


# ---- as text


class StateRow(NamedTuple):
    """One role; the names of the fields are those of the columns."""

    role: str
    a_rank: str
    """The largest one."""
    a_node: str
    """The fullest one."""
    derivation: str


def state_rows(plan: ExecutionPlan) -> list[StateRow]:
    """A row for each role that has a state, also where its size is not known."""
    nodes = state_on_nodes(plan)
    return [
        StateRow(
            str(role),
            _largest(nodes, "rank_bytes", role) if size.is_known else "not known",
            _largest(nodes, "node_bytes", role) if size.is_known else "not known",
            size.derivation,
        )
        for role, size in plan.state_sizes.items()
    ]


def state_sentence(plan: ExecutionPlan) -> str:
    """What the fullest node needs, and how long it copies; what to do if a size is not known."""
    if not all(size.is_known for size in plan.state_sizes.values()):
        return "where it is not known, say it for the role: state_size, in bytes a rank"
    nodes = state_on_nodes(plan)
    fullest = max(nodes, key=lambda node: int(node["bytes"]))
    slowest = max(float(node["copy_s"]) for node in nodes)
    return (
        f"a node needs up to {shown_bytes(fullest['bytes_of_2_versions'])} of memory for {VERSIONS} versions; the copy "
        f"of a commit takes about {slowest:.2g} s, if each rank copies {shown_bytes(COPY_BYTES_PER_S)}/s"
    )


def _largest(nodes: list[dict[str, Any]], key: str, role: RoleType) -> str:
    return shown_bytes(max((node[key][str(role)] for node in nodes if str(role) in node[key]), default=0))


def shown_bytes(size: float) -> str:
    """Such as '96 GB', '1.23 TB': three digits, by thousands."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB" if size < 999.5 else f"{size:.0f} TB"
