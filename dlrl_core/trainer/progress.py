"""Progress: where the trainer is, as the Master and the progress line see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlrl_core.trainer.call_log import CallLog


@dataclass(frozen=True, kw_only=True)
class ProgressReport:
    """One look at the trainer's progress."""

    phase: str
    step: int | None
    total_steps: int | None
    metrics: dict[str, float]
    phase_seconds: dict[str, float]
    """Seconds of the last whole step by 'role.method', and 'trainer' for what was spent between calls."""
    call: str | None
    """The last call that was begun, as 'role.method'."""
    edges: tuple[tuple[str, str, str], ...]
    """The graph as the calls have shown it: source role, target role, kind."""
    commit: str | None = None
    """The last commit, as JSON."""
    sent_at: float = field(default_factory=time.time)


class Progress:
    """Collects what the trainer does. Written by its thread, read by the one that reports."""

    def __init__(self, call_log: CallLog) -> None:
        self._call_log = call_log
        self._lock = threading.Lock()
        self._phase = "construct"
        self._step: int | None = None
        self._total: int | None = None
        self._metrics: dict[str, float] = {}
        self._step_seconds: dict[str, float] = {}
        self._step_began = time.perf_counter()
        self._at_begin: dict[str, float] = {}
        self._commit: str | None = None
        self._at_steps: list[tuple[int, Callable[[], Any]]] = []
        self.changes = 0
        self.news = threading.Event()
        """Set when there is something that the Master should hear at once."""

    def enter(self, phase: str) -> None:
        with self._lock:
            self._phase = phase
            self.changes += 1

    def at_step(self, step: int, do: Callable[[], Any]) -> None:
        """Do something when this step begins, or at once if it has begun."""
        if self._step is not None and self._step >= step:
            do()
        else:
            self._at_steps.append((step, do))

    def begin_step(self, step: int, total: int) -> None:
        for due, do in [one for one in self._at_steps if one[0] <= step]:
            self._at_steps.remove((due, do))
            do()
        with self._lock:
            if self._step is not None:
                self._close_step()
            self._step, self._total = step, total
            self._open_step()

    def end_steps(self, total: int) -> None:
        """All steps are done: `step` then counts the finished ones."""
        with self._lock:
            if self._step is not None:
                self._close_step()
            self._step, self._total = total, total
            self._open_step()

    def committed(self, commit: str | None) -> None:
        with self._lock:
            self._commit = commit
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
                call=self._call_log.last,
                edges=tuple((str(a), str(b), str(kind)) for a, b, kind in list(self._call_log.graph.edges)),
                commit=self._commit,
            )

    def _open_step(self) -> None:
        self._step_began = time.perf_counter()
        self._at_begin = dict(self._call_log.seconds)
        self.changes += 1

    def _close_step(self) -> None:
        whole = time.perf_counter() - self._step_began
        spent = {
            name: seconds - self._at_begin.get(name, 0.0)
            for name, seconds in self._call_log.seconds.items()
            if seconds > self._at_begin.get(name, 0.0)
        }
        self._step_seconds = {**spent, "trainer": max(0.0, whole - sum(spent.values()))}
