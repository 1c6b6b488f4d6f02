"""Files that nobody else can read, not even for a moment, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def create_private_file(path: Path) -> None:
    """Make an empty file and its missing directories, or leave what is there as it is.

    A file that is there but still empty becomes private too: it is so before its first byte. One with content
    keeps the mode that its owner gave it.
    """
    _create_directories(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        if path.stat().st_size == 0:
            path.chmod(FILE_MODE)
        return
    try:
        os.fchmod(descriptor, FILE_MODE)  # a umask may have taken the owner's bits too
    finally:
        os.close(descriptor)


def _create_directories(path: Path) -> None:
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:  # another process was faster
            continue
        directory.chmod(DIRECTORY_MODE)
