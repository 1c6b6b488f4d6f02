"""What a running job shows on stderr: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dlrl_core.cli import wording

if TYPE_CHECKING:
    from dlrl_core.api import JobStatus

METRICS_SHOWN = 6
PHASES_SHOWN = 3
_PERIOD_S = 5.0
_SPEED_WINDOW_S = 20.0


def progress_of(name: str, *, is_quiet: bool) -> Progress:
    """The kind of progress that suits stderr: nothing when quiet, a live line on a terminal, else plain lines."""
    if is_quiet:
        return Progress()
    if not sys.stderr.isatty():
        return PlainProgress()
    from dlrl_jobs.live_progress import LiveProgress

    return LiveProgress(name)


class Progress:
    """A context for the time that the job runs; `saw` is called several times a second. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def saw(self, status: JobStatus) -> None:
        """Called with the current status of the job."""


class PlainProgress(Progress):
    """A line for each new state or phase at once, and for new steps every few seconds."""

    def __init__(self) -> None:
        self._speed = StepSpeed()
        self._shown: tuple[str, str | None, str | None, int | None] | None = None
        self._shown_at = 0.0

    def saw(self, status: JobStatus) -> None:
        now = time.monotonic()
        self._speed.saw(status.step, now)
        seen = (status.state, status.phase, status.waiting_for, status.step)
        has_moved = self._shown is None or seen[:3] != self._shown[:3]
        if has_moved or (seen != self._shown and now - self._shown_at >= _PERIOD_S):
            self._shown, self._shown_at = seen, now
            print(f"dlrl: {plain_line(status, self._speed.steps_per_s)}", file=sys.stderr, flush=True)


def plain_line(status: JobStatus, steps_per_s: float | None) -> str:
    """The status of a job as one line of text."""
    phase = f" ({status.phase})" if status.phase else ""
    parts = [f"job '{status.name}' is {status.state}{phase}"]
    if status.waiting_for:
        parts.append(f"waiting for resources: {status.waiting_for}")
    if status.step is not None:
        parts.append(f"step {wording.steps(status.step, status.total_steps)}")
    if steps_per_s:
        parts.append(speed(steps_per_s))
    parts += [f"{name}={wording.number(value)}" for name, value in list(status.metrics.items())[:METRICS_SHOWN]]
    phases = wording.slowest(status.phase_seconds, PHASES_SHOWN)
    slowest = ", ".join(f"{name} {wording.duration(seconds)}" for name, seconds in phases)
    return ", ".join(parts) + (f"; slowest: {slowest}" if slowest else "")


def speed(steps_per_s: float) -> str:
    """Steps per second where that is at least one, else seconds per step."""
    return f"{steps_per_s:.3g} steps/s" if steps_per_s >= 1 else f"{wording.duration(1 / steps_per_s)}/step"


class StepSpeed:
    """Steps per second over the last twenty seconds, or over the last two changes if steps take longer."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def saw(self, step: int | None, now: float) -> None:
        """Count the job's current step. A step that goes back, after a restart, begins the count again."""
        if step is None:
            return
        if self._changes and step < self._changes[-1][1]:
            self._changes.clear()
        if not self._changes or step > self._changes[-1][1]:
            self._changes.append((now, step))
        while len(self._changes) > 2 and self._changes[0][0] < now - _SPEED_WINDOW_S:
            self._changes.popleft()

    @property
    def steps_per_s(self) -> float | None:
        """None until the step has changed twice."""
        if len(self._changes) < 2:
            return None
        (began, first), (ended, last) = self._changes[0], self._changes[-1]
        return (last - first) / (ended - began) if ended > began else None
