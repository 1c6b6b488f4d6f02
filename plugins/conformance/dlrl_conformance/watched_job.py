"""A submitted job that a test looks at: what it has committed, who is in it, how it ends."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlrl_conformance.restarts import Processes, processes_of
from dlrl_core.api import JobHandle, JobResult, RLJob
from dlrl_core.context import JobView
from dlrl_core.errors import DlrlError

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
        """The last committed step; -1 if there is none."""
        return int(self._commit.get("step", -1))

    @property
    def commits(self) -> int:
        """How many commits led here."""
        return int(self._commit.get("version", 0))

    @property
    def _commit(self) -> dict[str, int]:
        return json.loads(self.view["progress"]["commit_json"] or "{}")  # type: ignore[no-any-return]

    @property
    def is_final(self) -> bool:
        return self.view["ended_at"] is not None

    @property
    def is_whole(self) -> bool:
        """Everybody is up and the trainer runs, or all of it is done."""
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
    """Looks at a job again and again; `problems` has what must never be seen."""

    def __init__(self, handle: JobHandle) -> None:
        self.handle = handle
        self.problems: list[str] = []
        self.step_seconds = 0.0
        """How long a step takes when nothing happens; 0 as long as none was seen."""
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
        """The first look of which that is true; fails when the limit has passed, or the job is over."""
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
        """Its result; fails with the first cause, if it did not come to one."""
        try:
            return self.handle.wait(timeout=limit_s)
        except DlrlError as error:
            raise AssertionError(f"the job did not finish {when}: {error}") from error

    def _compare(self, before: Look, now: Look) -> None:
        # A new master reads what the one before it had written, and hears of the last commit a moment later.
        is_same_master = before.view["master_incarnation"] == now.view["master_incarnation"]
        if is_same_master and now.committed < before.committed:
            self.problems.append(f"step {before.committed} was committed, and then only step {now.committed}")
        if now.committed > before.committed >= 0:  # the first commit has the start in it
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
