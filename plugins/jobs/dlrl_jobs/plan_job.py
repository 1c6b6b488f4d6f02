"""`dlrl plan`: where each workload would be placed, before anything starts."""

from __future__ import annotations

import math
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlrl_core.errors import SpecError
from dlrl_jobs.job_input import JobInput

if TYPE_CHECKING:
    from dlrl_core.plan import ClusterView, ExecutionPlan
    from dlrl_core.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class ClusterChoice:
    """The cluster to plan on: a real one by its address, a described one, or (nothing said) the smallest that fits."""

    address: str | None
    file: Path | None
    nodes: int | None
    devices: int | None
    cpus: int | None

    def check(self) -> None:
        """Raises SpecError unless one cluster was said, or none."""
        is_counted = any(count is not None for count in (self.nodes, self.devices, self.cpus))
        if self.address is not None and is_counted:
            raise SpecError(["say either --address or --nodes and --devices, not both"])
        if self.file is not None and (self.address is not None or is_counted):
            other = "--nodes and --devices" if is_counted else "--address"
            raise SpecError([f"say either --cluster or {other}, not both"])
        if is_counted and (self.nodes is None or self.devices is None):
            raise SpecError(["a described cluster needs both --nodes and --devices"])

    def view(self, spec: JobSpec) -> ClusterView | None:
        if self.address is not None:
            return _real(self.address)
        if self.file is not None:
            from dlrl_jobs.cluster_file import ClusterFile

            return ClusterFile.read(self.file).view(spec)
        return None if self.nodes is None else self._described(spec)

    def _described(self, spec: JobSpec) -> ClusterView:
        """Only what was said is limited: of every other resource there is enough."""
        from dlrl_core.plan import ClusterView

        assert self.nodes is not None and self.devices is not None
        if spec.device_type == "CPU" and self.cpus is not None:
            raise SpecError(["the devices of this job are CPUs (device_type is 'CPU'); say --devices without --cpus"])
        named = {name for request in spec.placement_requests.values() for name in request.resource}
        resources = dict.fromkeys({"CPU", *named}, math.inf)
        if self.cpus is not None:
            resources["CPU"] = float(self.cpus)
        return ClusterView.described(node_num=self.nodes, resources={**resources, spec.device_type: self.devices})


@dataclass(frozen=True, kw_only=True)
class PictureFiles:
    """Files to draw the plan into."""

    svg: Path | None
    html: Path | None

    def check(self) -> None:
        """Raises SpecError if a folder is missing, before any work is done."""
        missing = [path for path in (self.svg, self.html) if path is not None and not path.parent.is_dir()]
        if missing:
            raise SpecError([f"can't write '{path}': there is no folder '{path.parent}'" for path in missing])

    def write(self, plan: ExecutionPlan) -> None:
        """Write those that were asked for, and say where on stderr."""
        if self.svg is not None:
            _write(self.svg, plan.to_svg())
        if self.html is not None:
            _write(self.html, plan.to_html())


def plan_job(given: JobInput, cluster: ClusterChoice, pictures: PictureFiles, *, as_json: bool) -> None:
    """Show the plan. Imports neither Ray nor the user's classes, unless a real cluster is asked."""
    cluster.check()
    pictures.check()
    with redirect_stdout(sys.stderr):
        job = given.build(import_classes=False)
        plan = job.plan(cluster.view(job.spec))
    pictures.write(plan)
    print(plan.in_format("json" if as_json else "terminal"), flush=True)


def _real(address: str) -> ClusterView:
    from dlrl_core.api.connection import connect
    from dlrl_core.scheduler.cluster_probe import view_cluster

    connection = connect(address)
    try:
        return view_cluster()
    finally:
        connection.close()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError([f"can't write '{path}': {error.strerror or error}"]) from error
    print(f"dlrl: wrote '{path}'", file=sys.stderr)
