"""State in memory, written and read as fast as memory allows: for `save_state` and `load_state` hooks.

A new file in memory costs three times a copy, because the kernel has to find and clear its pages. So the files of a
version that is no longer needed are written over.
"""

from __future__ import annotations

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
    folder = Path(folder)
    index = {}
    for number, (name, buffer) in enumerate(buffers.items()):
        view = memoryview(buffer)
        index[name] = {"file": f"{number}.buffer", "format": view.format, "shape": list(view.shape or ())}
        _write(folder, f"{number}.buffer", view.cast("B"))
    (folder / _INDEX).write_text(json.dumps(index))


def load_buffers(folder: str | Path) -> dict[str, memoryview]:
    """What was written, as memory that can be read; `numpy.array(view)` makes an array of it."""
    folder = Path(folder)
    index = json.loads((folder / _INDEX).read_text())
    return {name: _read(folder / one["file"], one["format"], one["shape"]) for name, one in index.items()}


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
    there = {path.stat().st_ino for path in folder.glob("*/*.buffer")}
    for inode in set(_mapped) - there:
        _mapped.pop(inode).close()


def _read(path: Path, format_: Any, shape: list[int]) -> memoryview:
    if path.stat().st_size == 0:
        empty: memoryview = memoryview(b"").cast(format_)
        return empty
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view: memoryview = memoryview(mapped).cast(format_, shape)
    return view
