"""A small file system that a test fills and empties: a mounted tmpfs, where this user may mount one."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = "filler"
_PIECE = 1024 * 1024


class SmallDisk:
    """A folder with a file system of its own, or one that can't be filled if none could be mounted."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted

    def fill(self) -> None:
        """Leave no byte free; returns when the system has said so."""
        assert self.is_mounted, "a disk of others is not filled"
        size = _PIECE
        with (self.folder / _FILLER).open("ab", buffering=0) as file:
            while size:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    @property
    def is_full(self) -> bool:
        return os.statvfs(self.folder).f_bavail == 0

    def empty(self) -> None:
        (self.folder / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """The folder, made for this user alone if it is missing, as a file system of that size until the end."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    try:
        yield SmallDisk(folder, is_mounted=is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
