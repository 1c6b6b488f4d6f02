"""The workloads of a plan as rows of text, for the tables of the command line and of the page."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from dlrl_core.plan.picture_layout import merged
from dlrl_core.plan.picture_words import shown_amounts, shown_ranges, shown_share, with_part

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan


class TableRow(NamedTuple):
    """One workload; the names of the fields are those of the columns."""

    workload: str
    node: str
    device: str
    share: str
    """Of each of its devices."""
    resources: str
    collocated_with: str


def table_rows(plan: ExecutionPlan, most: int) -> list[TableRow]:
    """All workloads, or the first of them, role by role in rank order."""
    found = []
    for row in plan.rows(most):
        devices = merged(range(device, device + 1) for device in row["devices"])
        found.append(
            TableRow(
                workload=with_part(row["workload"], row["part"]),
                node=row["node"],
                device=f"{plan.device_type} {shown_ranges(devices)}" if devices else "none",
                share=shown_share(Fraction(row["share"]) / len(row["devices"])) if devices else "",
                resources=shown_amounts(row["resources"]),
                collocated_with=", ".join(row["collocated_with"]),
            )
        )
    return found
