"""How fast steps go by, from looks at the step number."""

from __future__ import annotations

from collections import deque

_WINDOW_S = 20.0


class StepSpeed:
    """Steps per second over the last twenty seconds, or over the last two changes if steps take longer."""

    def __init__(self) -> None:
        self._changes: deque[tuple[float, int]] = deque()

    def saw(self, step: int | None, now: float) -> None:
        """A look at the job. A step that goes back, after a restart, begins the count again."""
        if step is None:
            return
        if self._changes and step < self._changes[-1][1]:
            self._changes.clear()
        if not self._changes or step > self._changes[-1][1]:
            self._changes.append((now, step))
        while len(self._changes) > 2 and self._changes[0][0] < now - _WINDOW_S:
            self._changes.popleft()

    @property
    def steps_per_s(self) -> float | None:
        """None until two changes were seen."""
        if len(self._changes) < 2:
            return None
        (began, first), (ended, last) = self._changes[0], self._changes[-1]
        return (last - first) / (ended - began) if ended > began else None
