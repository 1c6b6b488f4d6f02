"""What a running job shows on stderr: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dlrl_core.cli import wording
from dlrl_core.cli.step_speed import StepSpeed

if TYPE_CHECKING:
    from dlrl_core.api import JobStatus

METRICS_SHOWN = 6
PHASES_SHOWN = 3
_PERIOD_S = 5.0


def progress_of(name: str, *, is_quiet: bool) -> Progress:
    """How this process shows the progress of a job."""
    if is_quiet:
        return Progress()
    if not sys.stderr.isatty():
        return PlainProgress()
    from dlrl_core.cli.live_progress import LiveProgress

    return LiveProgress(name)


class Progress:
    """Used as a context while the job runs; `saw` gets a look at it several times a second. Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def saw(self, status: JobStatus) -> None:
        """The job as it is now."""


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
    """One look at a job as one line of text."""
    phase = f" ({status.phase})" if status.phase else ""
    parts = [f"job '{status.name}' is {status.state}{phase}"]
    if status.waiting_for:
        parts.append(f"waiting for resources: {status.waiting_for}")
    if status.step is not None:
        parts.append(f"step {wording.steps(status.step, status.total_steps)}")
    if steps_per_s:
        parts.append(wording.speed(steps_per_s))
    parts += [f"{name}={wording.number(value)}" for name, value in list(status.metrics.items())[:METRICS_SHOWN]]
    phases = wording.slowest(status.phase_seconds, PHASES_SHOWN)
    slowest = ", ".join(f"{name} {wording.duration(seconds)}" for name, seconds in phases)
    return ", ".join(parts) + (f"; slowest: {slowest}" if slowest else "")
