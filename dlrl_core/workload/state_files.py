"""State in memory, written and read as fast as memory allows: for `save_state` and `load_state` hooks.

A new file in memory costs three times a copy, because the kernel has to find and clear its pages. So the files of a
version that is no longer needed are written over.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

POOL = "pool"
_INDEX = "buffers.json"
_PIECE = 1 << 30


def save_buffers(folder: str | Path, buffers: Mapping[str, Any]) -> None:
    """Write contiguous buffers, such as numpy arrays, to the folder that `save_state` was given."""
    import numpy

    folder = Path(folder)
    index = {}
    for number, (name, buffer) in enumerate(buffers.items()):
        array = numpy.ascontiguousarray(buffer)
        index[name] = {"file": f"{number}.buffer", "dtype": array.dtype.str, "shape": list(array.shape)}
        _write(folder, f"{number}.buffer", memoryview(array.reshape(-1).view(numpy.uint8).data))
    (folder / _INDEX).write_text(json.dumps(index))


def load_buffers(folder: str | Path) -> dict[str, Any]:
    """What was written, as numpy arrays that can only be read, straight from the file; copy what is to be changed."""
    folder = Path(folder)
    index = json.loads((folder / _INDEX).read_text())
    return {name: _read(folder / one["file"], one["dtype"], one["shape"]) for name, one in index.items()}


_mapped: dict[int, mmap.mmap] = {}
"""Files that this process has written, by inode, kept in its memory: to write them over is one copy and no more."""


def _write(folder: Path, file: str, view: memoryview) -> None:
    target = folder / file
    try:
        (folder.parent / POOL / file).rename(target)
        known = _mapped.get(target.stat().st_ino)
    except FileNotFoundError:
        known = None
    if known is not None and len(known) == len(view):
        known[:] = view
    else:
        _write_new(target, view)
    _forget_all_but(folder.parent)


def _write_new(target: Path, view: memoryview) -> None:
    with target.open("r+b" if target.exists() else "w+b", buffering=0) as out:
        for start in range(0, len(view), _PIECE):
            out.write(view[start : start + _PIECE])
        out.truncate(len(view))
        if len(view):
            _mapped[target.stat().st_ino] = mmap.mmap(out.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _forget_all_but(folder: Path) -> None:
    """Memory of files that are gone is given back."""
    there = set()
    for version in list(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # it is being removed
            there |= {path.stat().st_ino for path in version.glob("*.buffer")}
    for inode in set(_mapped) - there:
        _mapped.pop(inode).close()


def _read(path: Path, dtype: str, shape: list[int]) -> Any:
    import numpy

    if path.stat().st_size == 0:
        return numpy.zeros(shape, dtype=dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return numpy.frombuffer(mapped, dtype=dtype).reshape(shape)
