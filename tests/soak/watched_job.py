"""A job that is being struck: its processes and how far it has come, as far as can be known just now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import ray
from checks import wait_until

from dlrl_core.api.job_handle import JobHandle
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.scheduler.workload_launcher import find_actor, processes_of
from soak.fault_plan import Target

LIMIT_S = 100.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """One process of the job."""

    pid: int
    node_id: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How far a job had come."""

    committed: int
    incidents: int
    master: int


class WatchedJob:
    """`handle` is asked only where the Master can answer; `places` needs the GCS, and is remembered without it."""

    def __init__(self, name: str, handle: JobHandle) -> None:
        self.name = name
        self.handle = handle
        self.has_gcs: Callable[[], bool] = lambda: True
        self._places: dict[str, Place] = {}

    def view(self) -> dict[str, Any]:
        """The status; the answer of a Master that is being restarted is waited for. Raises if the job has ended."""
        status = self.handle.status()
        if status.is_final:
            raise AssertionError(f"job '{self.name}' has ended while it was struck, {status.state}: {status.why}")
        return status.view

    def mark(self) -> Mark:
        view = self.view()
        incidents = view["incidents"]
        return Mark(
            committed=view["progress"]["committed_step"] or 0,
            incidents=incidents[-1]["number"] if incidents else 0,
            master=view["master_incarnation"],
        )

    def places(self) -> dict[str, Place]:
        """The living processes by name; while there is no GCS, those that were seen last."""
        if self.has_gcs():
            actors = {MASTER: find_actor(self.name, MASTER), **processes_of(self.name)}
            found = {
                name: ray._private.state.actors(actor_id=one._actor_id.hex()) for name, one in actors.items() if one
            }
            self._places = {
                name: Place(pid=one["Pid"], node_id=one["Address"]["NodeID"])
                for name, one in found.items()
                if one and one["State"] == "ALIVE" and psutil.pid_exists(one["Pid"])
            }
        return self._places

    def processes(self, target: Target) -> dict[str, Place]:
        """Those that live now, of this kind. Raises if the job has ended."""
        fixed = {Target.MASTER: MASTER, Target.TRAINER: TRAINER}
        found = {
            name: place
            for name, place in self.places().items()
            if name == fixed.get(target) or (target not in fixed and name not in fixed.values())
        }
        if not found and self.has_gcs():
            self.view()
        return found

    def is_recovering_since(self, before: Mark) -> bool:
        """Whether a fault was noticed since then, or another Master runs."""
        now = self.mark()
        return now.incidents > before.incidents or now.master > before.master

    def until_training_goes_on(self, after: Mark) -> None:
        """Two steps are committed beyond those of then, and no process is missing."""
        wait_until(lambda: self._goes_on(after), f"job '{self.name}' trains on after step {after.committed}", LIMIT_S)

    def _goes_on(self, after: Mark) -> bool:
        view = self.view()
        is_whole = view["trainer"]["state"] == "running" and all(one["state"] == "ready" for one in view["workloads"])
        return is_whole and (view["progress"]["committed_step"] or 0) >= after.committed + 2

    def is_degraded(self) -> bool:
        """Whether the Master says that its store takes no writes."""
        return bool(self.view()["degraded"])

    def until_healed(self) -> None:
        """The Master has written what waited."""
        try:
            wait_until(lambda: not self.is_degraded(), "", LIMIT_S)
        except AssertionError:
            raise AssertionError(f"job '{self.name}' does not heal: {self.view()['degraded']}") from None
