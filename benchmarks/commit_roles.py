"""The trainer of the commit benchmarks, what it asks of a role, and a role without a framework.

They are imported by name in the processes of a job, and import no framework.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation
from dlrl_core.workload.captured_state import CapturedState, SavedState, arrays_of, capture_arrays

WITHOUT, COMMITTED, LEFT_OUT = "without", "committed", "left_out"
PARTS = ("commit", "read", "touch", "update")
"""Of a step."""
TURN = 3
"""One step of so many commits nothing, whatever the budget says: all others are compared with it."""
INTERVALS = 3
"""The fewest between commits that a run has."""
_TOO_LONG = 3
_WARM_UP = 4
_COPIES = 3
_LOOK_S = 0.05
_PIECE = 16 * 2**20


class MeasuredWorkload(BaseWorkload):
    """A role whose steps are measured. A subclass says how its model is made, read and changed."""

    def set_up(self) -> None:
        """Make the model."""
        raise NotImplementedError

    def read_once(self) -> None:
        """The smallest piece of work that only reads the state."""
        raise NotImplementedError

    def update(self) -> None:
        """Change all of the state."""
        raise NotImplementedError

    @trainer_invocation(changes_state=False)
    def reads_in(self, seconds: float) -> int:
        """How many pieces of reading work take so long."""
        self.read_once()
        began = time.perf_counter()
        self.read_once()
        return max(1, round(seconds / (time.perf_counter() - began)))

    @trainer_invocation(changes_state=False)
    def read(self, times: int) -> None:
        """Most of a step: a fixed amount of work, so that it takes longer if a copy is in its way."""
        for _ in range(times):
            self.read_once()

    def touch(self) -> None:
        """Changes nothing, but may, as far as dlrl knows: it waits for what is left of a copy."""

    @trainer_invocation(changes_state=False)
    def size_and_copies(self) -> tuple[int, list[float]]:
        """The bytes of the state, and how long one copy of them to memory that is there takes."""
        captured = self.capture_state()  # type: ignore[attr-defined]
        targets = {name: np.ones(buffer.size, np.uint8) for name, buffer in captured.buffers.items()}
        seconds = []
        for _ in range(_COPIES):
            began = time.perf_counter()
            for name, target in targets.items():
                captured.buffers[name].copy_to(target.data)
            seconds.append(time.perf_counter() - began)
        return captured.size, seconds


class LargeHolder(MeasuredWorkload):
    """State as large as that of a rank of a real model, in one array."""

    def set_up(self) -> None:
        self.state = np.ones(int(self.config.state_bytes), dtype=np.uint8)
        self._small = np.ones((256, 256))

    def capture_state(self) -> CapturedState:
        return capture_arrays({"state": self.state})

    def restore_state(self, saved: SavedState) -> None:
        self.state = arrays_of(saved)["state"].copy()

    def read_once(self) -> None:
        for _ in range(100):
            self._small @ self._small

    def update(self) -> None:
        np.add(self.state, 1, out=self.state)


class PacedTrainer(BaseTrainer):
    """Steps of one job with commits at the job's pace, in turns with steps without any."""

    def init(self) -> None:
        self.RG_ACTOR.set_up()

    def fit(self) -> dict[str, Any]:
        reads = max(self.RG_ACTOR.reads_in(float(self.config.read_s)))
        self.RG_ACTOR.update()  # an optimizer makes its state with the first one
        told: list[tuple[int, list[float]]] = self.RG_ACTOR.size_and_copies()
        _touch(Path(self.config.memory), 2 * sum(size for size, _ in told))
        with peak_of(Path(self.config.memory)) as peak:
            self._warm_up(reads)
            steps = self._steps(reads)
        again = self.RG_ACTOR.size_and_copies()
        return {
            "steps": steps,
            "state": sum(size for size, _ in told),
            "copies": [max(copies) for one in (told, again) for copies in zip(*(rank for _, rank in one), strict=True)],
            "memory": peak[0],
        }

    def _warm_up(self, reads: int) -> None:
        """The first commits and updates get their memory from the kernel, and the first commit goes to the disk too."""
        for number in range(_WARM_UP):
            self._step(number, reads, may_commit=True)
            time.sleep(float(self.config.read_s))

    def _steps(self, reads: int) -> list[dict[str, Any]]:
        """From one commit up to the one that is the last: whole intervals between commits."""
        began, commits = time.perf_counter(), 0
        steps: list[dict[str, Any]] = []
        while True:
            steps.append(self._step(_WARM_UP + len(steps), reads, may_commit=len(steps) % TURN > 0))
            commits += steps[-1]["kind"] == COMMITTED
            took = time.perf_counter() - began
            if (took > float(self.config.seconds) and commits > INTERVALS) or took > _TOO_LONG * self.config.seconds:
                return steps

    def _step(self, number: int, reads: int, *, may_commit: bool) -> dict[str, Any]:
        """A step begins with the commit of the one before it, so that its copy is made within the same step."""
        times = [time.perf_counter()]
        if may_commit:
            self.commit(number)
        times.append(time.perf_counter())
        self.RG_ACTOR.read(reads)
        times.append(time.perf_counter())
        self.RG_ACTOR.touch()
        times.append(time.perf_counter())
        self.RG_ACTOR.update()
        times.append(time.perf_counter())
        is_committed = may_commit and self.committed_step == number
        kind = COMMITTED if is_committed else LEFT_OUT if may_commit else WITHOUT
        return {"kind": kind, **{part: times[n + 1] - times[n] for n, part in enumerate(PARTS)}}


@contextmanager
def peak_of(folder: Path) -> Iterator[list[int]]:
    """The most memory that the files below the folder had at once, in bytes, when this is over."""
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            peak[0] = max(peak[0], _used(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def _used(folder: Path) -> int:
    used: dict[int, int] = {}
    for path in folder.rglob("*"):
        try:
            seen = path.stat()
        except OSError:  # it was moved or removed just now
            continue
        used[seen.st_ino] = seen.st_blocks * 512  # a file that is moved meanwhile is met twice
    return sum(used.values())


def _touch(folder: Path, size: int) -> None:
    """Have the machine use so much memory once: a virtual one gets it from its host then, and that takes long."""
    file = folder / "touched"
    with file.open("wb", buffering=0) as target:
        for _ in range(-(-size // _PIECE)):
            target.write(bytes(_PIECE))
    file.unlink()
