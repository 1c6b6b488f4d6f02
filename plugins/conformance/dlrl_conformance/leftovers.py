"""What a job has left behind: on its cluster, and on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TypeVar

import psutil

from dlrl_conformance.restarts import Processes
from dlrl_core.scheduler.cluster_probe import living_actors, standing_reservations
from dlrl_core.workload.state_files import left_in_memory

T = TypeVar("T")

_LOOK_S = 0.1


@dataclass(frozen=True, kw_only=True)
class SeenProcess:
    """A process of a job, or one that it had started."""

    owner: str
    process: psutil.Process

    @property
    def lives(self) -> bool:
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def belongs_to(self, pids: Set[int | None]) -> bool:
        """Whether it is one of these, or below one of them."""
        try:
            return self.process.pid in pids or any(parent.pid in pids for parent in self.process.parents())
        except psutil.Error:
            return False

    def __str__(self) -> str:
        try:
            command = " ".join(self.process.cmdline())[:80]
        except psutil.Error:
            command = "gone meanwhile"
        return f"process {self.process.pid} of '{self.owner}' ({command})"


class ProcessTrail:
    """The processes of a job on this machine, and those that they had started, engines for example."""

    def __init__(self) -> None:
        self._seen: set[SeenProcess] = set()

    def note(self, processes: Processes) -> None:
        """Remember who is there now."""
        for name, (_, pid) in processes.items():
            if pid is not None:
                self._seen.update(SeenProcess(owner=name, process=process) for process in _family(pid))

    def outliving(self, current: Processes) -> list[SeenProcess]:
        """Who is still there, and belongs to nobody who is there now."""
        pids = {pid for _, pid in current.values()}
        return [one for one in self._seen if one.lives and not one.belongs_to(pids)]


def left_of(job: str, run_id: str, trail: ProcessTrail) -> list[str]:
    """Everything of the job that is still there."""
    left = [f"actor '{name}'" for name in living_actors().get(job, [])]
    left += [f"a reservation that is {state}" for name, state in standing_reservations().items() if name == job]
    left += [f"state in memory: {folder}" for folder in left_in_memory(run_id)]
    return left + [str(one) for one in trail.outliving({})]


def wait_until_gone(left: Callable[[], list[T]], limit_s: float) -> list[T]:
    """What is left when all is gone, or the limit has passed."""
    deadline = time.monotonic() + limit_s
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


def _family(pid: int) -> set[psutil.Process]:
    """The process and all below it; nobody, if the pid is of another machine."""
    try:
        process = psutil.Process(pid)
        is_ours = " ".join(process.cmdline()).startswith("ray::")
        return {process, *process.children(recursive=True)} if is_ours else set()
    except psutil.Error:
        return set()
