"""The state of a workload as a commit takes it: named buffers that a thread copies later, and a layout in JSON."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

_PIECE = 64 * 2**20


class StateBuffer(Protocol):
    """A range of memory that belongs to a workload's state, on the host or on a device."""

    @property
    def size(self) -> int:
        """In bytes."""

    def copy_to(self, target: memoryview) -> None:
        """Copy all bytes to `target`, which has that size. Called in a thread; large copies release the GIL."""


@runtime_checkable
class DivisibleBuffer(StateBuffer, Protocol):
    """A buffer of which ranges can be copied by themselves: several ranks that hold it alike then share the work."""

    def part(self, start: int, size: int) -> StateBuffer:
        """That range of its bytes."""


@dataclass(frozen=True)
class HostBuffer:
    """Contiguous memory of this process. `owner` is any object that keeps it from being freed."""

    address: int
    size: int
    owner: Any

    def copy_to(self, target: memoryview) -> None:
        if not self.size:
            return
        to = ctypes.addressof(ctypes.c_char.from_buffer(target))
        for start in range(0, self.size, _PIECE):  # ctypes releases the GIL for each piece
            ctypes.memmove(to + start, self.address + start, min(_PIECE, self.size - start))

    def part(self, start: int, size: int) -> HostBuffer:
        return HostBuffer(self.address + start, size, self.owner)


@dataclass(frozen=True, kw_only=True)
class CapturedState:
    """What `capture_state` returns: the state at this moment, by reference.

    The buffers are copied while the workload goes on; no call that changes state runs before the copy is complete.
    """

    layout: Any
    """Plain JSON values: everything that `restore_state` needs besides the bytes of the buffers."""
    buffers: Mapping[str, StateBuffer]
    alike: Mapping[str, str] = field(default_factory=dict)
    """Of buffers that several ranks of the role hold with the same bytes, a name of that content: the same name on all
    these ranks. It is kept once a node, from whichever of them copies it; at the first commit of a process, a rank with
    other bytes is refused."""

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self.buffers.values())


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """What `restore_state` gets: the layout of a commit, and its bytes, mapped from where they are kept.

    The mapped bytes are those of the commit until `restore_state` returns; copy what is kept.
    """

    layout: Any
    buffers: Mapping[str, memoryview]


# ---- for workloads whose state is arrays


def capture_arrays(arrays: Mapping[str, Any]) -> CapturedState:
    """Named numpy arrays by reference; one that is not contiguous is copied now. For `capture_state`."""
    import numpy

    held = {name: numpy.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in held.items():
        if array.dtype.hasobject or numpy.dtype(array.dtype.str) != array.dtype:
            raise TypeError(f"a commit can't hold array '{name}' of dtype {array.dtype}; give its plain parts")
    return CapturedState(
        layout={name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in held.items()},
        buffers={name: HostBuffer(array.ctypes.data, array.nbytes, array) for name, array in held.items()},
    )


def arrays_of(saved: SavedState) -> dict[str, Any]:
    """Copies of the arrays. For `restore_state`."""
    import numpy

    return {
        name: numpy.frombuffer(saved.buffers[name], dtype=one["dtype"]).reshape(one["shape"]).copy()
        for name, one in saved.layout.items()
    }
