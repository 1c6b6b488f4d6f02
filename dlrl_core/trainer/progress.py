"""Progress: where the trainer is, as the Master and the progress line see it; CallLog: its calls and waiting times."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.graph import EdgeKind, RoleGraph
from dlrl_core.roles import RoleType
from dlrl_core.workload.state_keeper import Commit


@dataclass(slots=True)
class CallLog:
    """Waiting time for each 'role.method', and the order of calls. Written on every call, so it does little."""

    seconds: dict[str, float] = field(default_factory=dict)
    graph: RoleGraph = field(default_factory=RoleGraph)
    current: str | None = None
    """The call that the trainer waits for, as 'role.method'; one that failed stays until the next call."""
    _last_role: RoleType | None = None

    def began(self, role: RoleType, name: str) -> None:
        """A call is made; `name` is 'role.method'."""
        self.current = name
        if self._last_role is not role:
            if self._last_role is not None:
                self.graph.saw(self._last_role, role, EdgeKind.ORDER)
            self._last_role = role

    def waited(self, name: str, seconds: float) -> None:
        """The trainer waited this long for the call's results."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.current = None


LEASE_S = 20.0
"""How long a trainer may call workloads after it has sent a report to which the Master answered that it may."""


@dataclass(frozen=True, kw_only=True)
class ProgressReport:
    """The trainer's progress at one moment."""

    phase: str
    step: int | None
    """The step that runs, counted from 1; after the last one it stays at the total. None before the first."""
    total_steps: int | None
    metrics: dict[str, float]
    phase_seconds: dict[str, float]
    """Seconds of the last whole step by 'role.method', and under 'trainer' those between calls."""
    edges: tuple[tuple[str, str, str], ...]
    """The graph of the calls so far: source role, target role, kind."""
    commit: str | None = None
    """The last commit that counts, as JSON."""
    commits: CommitsReport | None = None
    sent_at: float = field(default_factory=time.time)
    incarnation: int = 0
    has_lease: bool = False
    sequence: int = field(default_factory=itertools.count(1).__next__)
    """Of the reports of one process; no clock is set back in it."""


class Progress:
    """Collects the trainer's progress. Written by its thread, read by the one that reports.

    The trainer's own step indices come in, from 0; everything that goes out counts steps from 1.
    """

    def __init__(self, call_log: CallLog) -> None:
        self._call_log = call_log
        self._lock = threading.Lock()
        self._phase = "construct"
        self._step: int | None = None
        """Counted from 1."""
        self._total: int | None = None
        self._metrics: dict[str, float] = {}
        self._step_seconds: dict[str, float] = {}
        self._step_began = time.perf_counter()
        self._at_begin: dict[str, float] = {}
        self._commit: str | None = None
        self._commits: CommitsReport | None = None
        self._at_steps: list[tuple[int, Callable[[], Any]]] = []
        self.changes = 0
        self.news = threading.Event()
        """Set when there is something to report at once."""

    def enter(self, phase: str) -> None:
        with self._lock:
            self._phase = phase
            self.changes += 1

    def at_step(self, step: int, do: Callable[[], Any]) -> None:
        """Call `do` when this step begins, counted from 1; now, if it has begun."""
        if self._step is not None and self._step >= step:
            do()
        else:
            self._at_steps.append((step, do))

    def begin_step(self, index: int, total: int) -> None:
        """A step begins; `index` counts from 0."""
        for due, do in [one for one in self._at_steps if one[0] <= index + 1]:
            self._at_steps.remove((due, do))
            do()
        self._enter_step(index + 1, total)

    def end_steps(self, total: int) -> None:
        """All steps are done."""
        self._enter_step(total, total)

    def _enter_step(self, step: int, total: int) -> None:
        with self._lock:
            if self._step is not None:
                self._step_seconds = self._seconds_of_step()
            self._step, self._total = step, total
            self._step_began = time.perf_counter()
            self._at_begin = dict(self._call_log.seconds)
            self.changes += 1

    def _seconds_of_step(self) -> dict[str, float]:
        whole = time.perf_counter() - self._step_began
        spent = {
            name: seconds - self._at_begin.get(name, 0.0)
            for name, seconds in self._call_log.seconds.items()
            if seconds > self._at_begin.get(name, 0.0)
        }
        return {**spent, "trainer": max(0.0, whole - sum(spent.values()))}

    def committed(self, commit: Commit | None, report: CommitsReport) -> None:
        """This is the last commit that counts."""
        with self._lock:
            self._commit, self._commits = commit.to_json() if commit else None, report
            self.changes += 1
        self.news.set()

    def log(self, metrics: Mapping[str, float]) -> None:
        numbers = {name: float(value) for name, value in metrics.items()}
        with self._lock:
            self._metrics.update(numbers)
            self.changes += 1

    def report(self) -> ProgressReport:
        with self._lock:
            return ProgressReport(
                phase=self._phase,
                step=self._step,
                total_steps=self._total,
                metrics=dict(self._metrics),
                phase_seconds=dict(self._step_seconds),
                edges=tuple((str(a), str(b), str(kind)) for a, b, kind in list(self._call_log.graph.edges)),
                commit=self._commit,
                commits=self._commits,
            )
