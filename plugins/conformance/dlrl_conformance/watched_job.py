"""A submitted job under test: its commits, its processes, its end, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

import psutil

from dlrl_core.api import JobHandle, JobResult, RLJob
from dlrl_core.context import JobView
from dlrl_core.errors import DlrlError
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.scheduler.cluster_probe import living_actors, standing_reservations
from dlrl_state.run_memory import left_in_memory

T = TypeVar("T")
Processes = Mapping[str, tuple[int, int | None]]
"""By name, the incarnation and the pid of each process of a job; of the Master, the incarnation alone."""

_LOOK_S = 0.03


@dataclass(frozen=True, kw_only=True)
class Look:
    """A job at one moment."""

    view: JobView

    @property
    def processes(self) -> Processes:
        return processes_of(self.view)

    @property
    def committed(self) -> int:
        """The last committed step, counted from 1; 0 if there is none."""
        return int(self.view["progress"]["committed_step"] or 0)

    @property
    def commits(self) -> int:
        """How many commits led here."""
        return int(json.loads(self.view["progress"]["commit_json"] or "{}").get("count", 0))

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def is_whole(self) -> bool:
        """All workloads are ready and the trainer runs, or the job has finished."""
        trainer, workloads = self.view["trainer"], self.view["workloads"]
        are_up = all(one["state"] == "ready" and one["pid"] is not None for one in workloads)
        is_training = trainer["state"] == "running" and trainer["pid"] is not None
        return self.view["state"] == "finished" or (self.view["state"] == "running" and are_up and is_training)

    def __str__(self) -> str:
        step, total = self.view["progress"]["step"], self.view["progress"]["total_steps"]
        not_up = [f"{one['name']} {one['state']}" for one in self.view["workloads"] if one["state"] != "ready"]
        who = f"; {', '.join(not_up)}" if not_up else ""
        return f"the job is {self.view['state']} at step {step} of {total}, committed up to {self.committed}{who}"


class WatchedJob:
    """Reads the status of a job again and again; `problems` lists commits that were lost on the way."""

    def __init__(self, handle: JobHandle) -> None:
        self.handle = handle
        self.problems: list[str] = []
        self.step_seconds = 0.0
        """How long the shortest step took; 0 before the second commit."""
        self._last: Look | None = None
        self._advanced_at = time.monotonic()

    def look(self) -> Look:
        """The job now."""
        look = Look(view=self.handle.status().view)
        if self._last is not None:
            self._compare(self._last, look)
        self._last = look
        return look

    def until(self, is_so: Callable[[Look], bool], what: str, limit_s: float) -> Look:
        """The first look for which `is_so` is true; fails when the limit has passed, or the job is over."""
        deadline = time.monotonic() + limit_s
        while True:
            look = self.look()
            if is_so(look):
                return look
            if look.is_final:
                self.end(limit_s, f"before {what}")
                raise AssertionError(f"the job was over before {what}; give it more steps, or slower ones")
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}; {look}"
            time.sleep(_LOOK_S)

    def end(self, limit_s: float, when: str = "") -> JobResult:
        """The job's result; fails with the first cause if the job failed."""
        try:
            return self.handle.wait(timeout=limit_s)
        except DlrlError as error:
            raise AssertionError(f"the job did not finish {when}: {error}") from error

    def _compare(self, before: Look, now: Look) -> None:
        # A restarted Master starts from the record, and is told of the last commit a moment later.
        is_same_master = before.view["master_incarnation"] == now.view["master_incarnation"]
        if is_same_master and now.committed < before.committed:
            self.problems.append(f"step {before.committed} was committed, and then only step {now.committed}")
        if now.committed > before.committed > 0:  # the first commit has the start in it
            seconds = (time.monotonic() - self._advanced_at) / (now.committed - before.committed)
            self.step_seconds = min(seconds, self.step_seconds or seconds)
        if now.committed > before.committed:
            self._advanced_at = time.monotonic()


@contextlib.contextmanager
def submitted(job: RLJob, name: str) -> Iterator[WatchedJob]:
    """The job, running on the cluster this process is connected to. It is stopped if the test fails on the way."""
    handle = job.submit(name, blocking=False)
    try:
        yield WatchedJob(handle)
    except BaseException:
        with contextlib.suppress(DlrlError):
            handle.stop("its conformance test failed")
        raise


def processes_of(view: JobView) -> dict[str, tuple[int, int | None]]:
    """All processes of the job."""
    everybody = {one["name"]: (one["incarnation"], one["pid"]) for one in view["workloads"]}
    everybody[TRAINER] = (view["trainer"]["incarnation"], view["trainer"]["pid"])
    return {**everybody, MASTER: (view["master_incarnation"], None)}


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "nobody"


# ---- what a job leaves behind


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
        """Whether it is one of these processes, or was started by one of them."""
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
        """Remember these processes and those that they have started."""
        for name, (_, pid) in processes.items():
            if pid is not None:
                self._seen.update(SeenProcess(owner=name, process=process) for process in _family(pid))

    def outliving(self, current: Processes) -> list[SeenProcess]:
        """Remembered processes that still run and belong to no current process of the job."""
        pids = {pid for _, pid in current.values()}
        return [one for one in self._seen if one.lives and not one.belongs_to(pids)]


def left_of(job: str, run_id: str, trail: ProcessTrail) -> list[str]:
    """Actors, reservations, state and processes of the job that still exist."""
    left = [f"actor '{name}'" for name in living_actors().get(job, [])]
    left += [f"a reservation that is {state}" for name, state in standing_reservations().items() if name == job]
    left += [f"state in memory: {folder}" for folder in left_in_memory(run_id)]
    return left + [str(one) for one in trail.outliving({})]


def wait_until_gone(left: Callable[[], list[T]], limit_s: float) -> list[T]:
    """Wait until nothing is left or the limit has passed; returns what is left then."""
    deadline = time.monotonic() + limit_s
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


def _family(pid: int) -> set[psutil.Process]:
    """The process and all that it started; empty if the pid is of another machine."""
    try:
        process = psutil.Process(pid)
        is_ours = " ".join(process.cmdline()).startswith("ray::")
        return {process, *process.children(recursive=True)} if is_ours else set()
    except psutil.Error:
        return set()
