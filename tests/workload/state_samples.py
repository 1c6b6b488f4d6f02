"""Commits and captured states for tests of how they are kept."""

from __future__ import annotations

import numpy as np

from dlrl_core.workload.captured_state import CapturedState, SavedState, StateBuffer, arrays_of, capture_arrays
from dlrl_core.workload.state_keeper import Commit


def commit(version: int, attempt: str = "") -> Commit:
    return Commit(version=version, id=f"id{version}{attempt}", step=version - 1, progress={"seen": version})


def numbers(value: int, size: int = 1000) -> dict[str, np.ndarray]:
    return {"weights": np.full(size, value, dtype=np.int64), "empty": np.zeros((0, 3)), "one": np.array(value / 7)}


def state(value: int, size: int = 1000) -> CapturedState:
    return capture_arrays(numbers(value, size))


def assert_is(saved: SavedState | None, value: int, size: int = 1000) -> None:
    assert saved is not None
    found = arrays_of(saved)
    for name, array in numbers(value, size).items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


class GatedBuffer:
    """A buffer whose copy waits for a gate, as a large one takes its time."""

    def __init__(self, inner: StateBuffer, gate) -> None:
        self._inner = inner
        self._gate = gate
        self.size = inner.size

    def copy_to(self, target: memoryview) -> None:
        assert self._gate.wait(30)
        self._inner.copy_to(target)


def gated(captured: CapturedState, gate) -> CapturedState:
    buffers = {name: GatedBuffer(buffer, gate) for name, buffer in captured.buffers.items()}
    return CapturedState(layout=captured.layout, buffers=buffers)
