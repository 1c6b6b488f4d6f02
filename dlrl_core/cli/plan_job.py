"""`dlrl plan`: who would sit where, before anything starts."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrl_core.cli.job_input import JobInput
from dlrl_core.cli.output import console, print_json
from dlrl_core.errors import SpecError

if TYPE_CHECKING:
    from dlrl_core.plan import ClusterView, ExecutionPlan
    from dlrl_core.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class ClusterChoice:
    """The cluster to plan on: a real one by its address, a described one, or (nothing said) the smallest that fits."""

    address: str | None
    nodes: int | None
    devices: int | None
    cpus: int | None

    def check(self) -> None:
        """Raises SpecError unless one cluster was said, or none."""
        described = (self.nodes, self.devices, self.cpus)
        if self.address is not None and any(count is not None for count in described):
            raise SpecError(["say either --address or --nodes and --devices, not both"])
        if any(count is not None for count in described) and (self.nodes is None or self.devices is None):
            raise SpecError(["a described cluster needs both --nodes and --devices"])

    def view(self, spec: JobSpec) -> ClusterView | None:
        if self.address is not None:
            return _real(self.address)
        return None if self.nodes is None else self._described(spec)

    def _described(self, spec: JobSpec) -> ClusterView:
        """Only what was said is limited: of every other resource there is enough."""
        from dlrl_core.plan import ClusterView

        assert self.nodes is not None and self.devices is not None
        if spec.device_type == "CPU" and self.cpus is not None:
            raise SpecError(["the devices of this job are CPUs (device_type is 'CPU'); say --devices without --cpus"])
        named = {name for role in spec.roles for name in role.resource}
        resources = dict.fromkeys({"CPU", *named}, float("inf"))
        if self.cpus is not None:
            resources["CPU"] = float(self.cpus)
        return ClusterView.described(node_num=self.nodes, resources={**resources, spec.device_type: self.devices})


def plan_job(given: JobInput, cluster: ClusterChoice, *, as_json: bool) -> None:
    """Show the plan. Imports neither Ray nor the user's classes, unless a real cluster is asked."""
    cluster.check()
    with redirect_stdout(sys.stderr):
        job = given.build(import_classes=False)
        plan = job.plan(cluster.view(job.spec))
    if as_json:
        print_json(_as_json(plan))
    else:
        _print(plan)


def _real(address: str) -> ClusterView:
    from dlrl_core.api.connection import connect
    from dlrl_core.scheduler.cluster_probe import view_cluster

    connection = connect(address)
    try:
        return view_cluster()
    finally:
        connection.close()


def _as_json(plan: ExecutionPlan) -> dict[str, Any]:
    return {
        "device_type": plan.device_type,
        "nodes": [{"node_id": node.node_id, "address": node.address} for node in plan.nodes],
        "device_count": _device_count(plan),
        "workloads": plan.rows(),
    }


def _print(plan: ExecutionPlan) -> None:
    from dlrl_core.cli.tables import list_table

    table = list_table("workload", "node", "device", "share", "collocated with")
    for row in plan.rows():
        has_device = row["device"] is not None
        table.add_row(
            row["workload"],
            row["node"],
            f"{plan.device_type} {row['device']}" if has_device else "none",
            f"{row['share'] * 100:.4g}%" if has_device else "",
            ", ".join(row["collocated_with"]),
        )
    stdout = console()
    stdout.print(table)
    nodes, devices = len(plan.nodes), _device_count(plan)
    stdout.print(
        f"{len(plan.workloads)} workloads on {nodes} node{'s' * (nodes != 1)}, "
        f"{devices} {plan.device_type} device{'s' * (devices != 1)}"
    )


def _device_count(plan: ExecutionPlan) -> int:
    return sum(bundle.device is not None for bundle in plan.bundles)
