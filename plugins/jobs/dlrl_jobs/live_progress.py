"""The live progress of a terminal: two lines that are redrawn while the job runs, and removed at the end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dlrl_core.cli import wording
from dlrl_core.cli.output import state_style
from dlrl_jobs.progress import METRICS_SHOWN, PHASES_SHOWN, Progress, StepSpeed, speed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dlrl_core.api import JobStatus

_REFRESHES_PER_S = 5
_BAR_WIDTH = 24


class LiveProgress(Progress):
    """State, phase, step and speed; below them the newest metrics and the slowest phases.

    While it is shown, whatever else is printed, such as output of the job's processes, goes above it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._status: JobStatus | None = None
        self._speed = StepSpeed()
        self._began = time.monotonic()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=Console(stderr=True),
            get_renderable=self._drawn,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def saw(self, status: JobStatus) -> None:
        self._speed.saw(status.step, time.monotonic())
        self._status = status

    def _drawn(self) -> RenderableType:
        status = self._status
        if status is None:
            return _row(
                self._spinner, Text(self._name, style="bold"), Text("connecting", style="cyan"), self._elapsed()
            )
        where = Text(status.state, style=state_style(status.state))
        if status.phase:
            where.append(f" · {status.phase}", style="default")
        first = _row(self._spinner, Text(self._name, style="bold"), where, *self._steps(status), self._elapsed())
        if status.waiting_for:
            return Group(first, Text(f"  waiting for resources: {status.waiting_for}", style="yellow"))
        below = Text.assemble("  ", _metrics(status), "   ", _slowest(status), no_wrap=True, overflow="ellipsis")
        return Group(first, below) if below.plain.strip() else first

    def _steps(self, status: JobStatus) -> list[RenderableType]:
        if status.step is None:
            return []
        shown: list[RenderableType] = []
        if status.total_steps:
            shown.append(ProgressBar(total=status.total_steps, completed=status.step, width=_BAR_WIDTH))
        shown.append(Text(f"step {wording.steps(status.step, status.total_steps)}"))
        if self._speed.steps_per_s:
            shown.append(Text(speed(self._speed.steps_per_s), style="green"))
        return shown

    def _elapsed(self) -> Text:
        """Of constant width, such as '0:02:05'."""
        whole = int(time.monotonic() - self._began)
        return Text(f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}", style="dim")


def _row(*cells: RenderableType) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(*cells)
    return row


def _metrics(status: JobStatus) -> Text:
    items = list(status.metrics.items())[:METRICS_SHOWN]
    return Text("  ").join(Text.assemble((f"{name} ", "dim"), (wording.number(value), "bold")) for name, value in items)


def _slowest(status: JobStatus) -> Text:
    phases = wording.slowest(status.phase_seconds, PHASES_SHOWN)
    return Text(" · ", style="dim").join(
        Text.assemble((f"{name} ", "dim"), (wording.duration(seconds), "yellow")) for name, seconds in phases
    )
