"""Where the committed state of a workload lies: in the memory of its node, and copied to durable storage.

Each version is a folder that the framework's own save function fills. A version counts once it has its manifest and
its final name; both come last, so that a crash in between leaves nothing that could be taken for it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlrl_core.workload.state_files import POOL

_KEPT = 2
"""Versions kept on each tier: the last one may be missing on another rank."""
_MANIFEST = "dlrl_commit.json"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of the trainer: what every rank writes beside its state."""

    version: int
    id: str
    """Of this attempt: a commit of the same number that did not come through is another one."""
    step: int
    progress: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Commit:
        return cls(**json.loads(text))


def memory_root(run_id: str) -> Path:
    """The folder of a run in the memory of this node."""
    shared = Path("/dev/shm")
    base = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"dlrl-{os.getuid()}" / run_id


class StateFolder:
    """The versions of one workload's state that this node can reach."""

    def __init__(self, *, run_id: str, workload: str, durable: str | None, node_id: str = "") -> None:
        # By node, so that several nodes on one machine do not see each other's memory either.
        self._memory = memory_root(run_id) / node_id / workload
        self._durable = Path(durable) / workload if durable else None
        self._copying = threading.Lock()
        self._being_copied: set[int] = set()

    def begin(self, version: int) -> Path:
        """An empty folder to write this version to."""
        folder = self._memory / f"{version}.part"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def keep(self, commit: Commit) -> None:
        """The version is written: from here on it counts. Older ones go, but the last."""
        folder = self._memory / f"{commit.version}.part"
        _publish(folder, self._memory / str(commit.version), commit)
        self._recycle()

    def _recycle(self) -> None:
        """The oldest version's files may be written over; those left of an older one are removed in the background."""
        old = [version for version in _versions(self._memory)[:-_KEPT] if version not in self._being_copied]
        if not old:
            return
        pool, unused = self._memory / POOL, self._memory / f"unused-{uuid.uuid4().hex}"
        if pool.exists():
            pool.rename(unused)
            threading.Thread(target=shutil.rmtree, args=(unused, True), name="dlrl-recycle", daemon=True).start()
        (self._memory / str(old[-1])).rename(pool)
        for version in old[:-1]:
            shutil.rmtree(self._memory / str(version), ignore_errors=True)

    def copy_to_durable(self, version: int) -> None:
        """Copy a version to durable storage, one at a time; returns when it is there to stay."""
        if self._durable is None:
            return
        self._being_copied.add(version)  # its files are not written over meanwhile
        try:
            with self._copying:
                self._copy(self._memory / str(version), self._durable)
        finally:
            self._being_copied.discard(version)

    def _copy(self, source: Path, durable: Path) -> None:
        target, part = durable / source.name, durable / f"{source.name}.part"
        if target.exists() or not source.exists():
            return
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        _sync(part)
        part.replace(target)
        _sync_folder(durable)
        _prune(durable)

    def held(self) -> dict[int, Commit]:
        """Every version that can be loaded here."""
        found = {}
        for root in (self._durable, self._memory):
            for version in _versions(root):
                assert root is not None
                found[version] = Commit.from_json((root / str(version) / _MANIFEST).read_text())
        return found

    def forget_after(self, version: int) -> None:
        """Versions after this one never happened."""
        for root in (self._memory, self._durable):
            for newer in _versions(root):
                if root is not None and newer > version:
                    shutil.rmtree(root / str(newer), ignore_errors=True)

    def folder_of(self, version: int) -> Path:
        """Where to load it from: memory if it is there."""
        in_memory = self._memory / str(version)
        if in_memory.exists() or self._durable is None:
            return in_memory
        return self._durable / str(version)


def _publish(folder: Path, target: Path, commit: Commit) -> None:
    (folder / _MANIFEST).write_text(commit.to_json())
    shutil.rmtree(target, ignore_errors=True)
    folder.replace(target)


def _versions(root: Path | None) -> list[int]:
    if root is None or not root.is_dir():
        return []
    return sorted(int(one.name) for one in root.iterdir() if one.name.isdigit() and (one / _MANIFEST).is_file())


def _prune(root: Path) -> None:
    for version in _versions(root)[:-_KEPT]:
        shutil.rmtree(root / str(version), ignore_errors=True)


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_run(run_id: str) -> None:
    """Remove what a run has left in the memory of this node."""
    root = memory_root(run_id)
    shutil.rmtree(root, ignore_errors=True)
    try:
        root.parent.rmdir()  # unless another run is there
    except OSError:
        return
