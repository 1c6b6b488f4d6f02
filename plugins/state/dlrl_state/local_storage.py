"""Durable storage that is a folder: written beside, synced, and renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dlrl_core.workload.state_keeper import Commit
from dlrl_state.durable_storage import CopyProgress, DurableStorage
from dlrl_state.version_folder import (
    Version,
    discard,
    folder_name,
    new_part,
    publish,
    published,
    sizes_of_files,
    unused_parts,
)

if TYPE_CHECKING:
    from dlrl_state.state_memory import StateMemory

_PIECE = 16 * 2**20
_MANIFEST_ROOM = 2**20


class LocalStorage(DurableStorage):
    """The versions of one workload below a folder that outlives its node."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._folder = folder

    def held(self) -> dict[str, Commit]:
        return {id_: version.commit for id_, version in published(self._folder).items()}

    def write(self, version: Version, progress: CopyProgress) -> None:
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for part in unused_parts(self._folder):
            shutil.rmtree(part, ignore_errors=True)
        free = shutil.disk_usage(self._folder).free
        if free < version.size + _MANIFEST_ROOM:
            raise OSError(f"it needs {version.size / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free there")
        part = new_part(self._folder, version.commit)
        try:
            for file in sizes_of_files(version.pieces):
                _copy_file(version.folder / file, part / file, progress)
            if version.damage_of(part, progress.moved) is not None:
                raise OSError("it was changed while it was copied")
            publish(part, version.commit, version.pieces, is_synced=True, check=progress.check)
        except BaseException:
            with contextlib.suppress(OSError):
                shutil.rmtree(part)
            raise

    def bring(self, commit: Commit, memory: StateMemory) -> Version:
        """The version as it lies: its files are mapped from there."""
        version = published(self._folder).get(commit.id)
        if version is None:
            raise FileNotFoundError("there is no whole version of it")
        return version

    def remove(self, commit: Commit) -> None:
        discard(self._folder / folder_name(commit))

    def sweep(self, before: int) -> None:
        """Nothing: a copy that begins does it, as only then it is known that this process writes no other."""

    def remove_all(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _copy_file(source: Path, target: Path, progress: CopyProgress) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, target.open("wb") as write:
        while data := read.read(_PIECE):
            progress.check()
            write.write(data)
            write.flush()
            os.fdatasync(write.fileno())  # piece by piece: storage that is slow is seen to move
            progress.moved()
