"""Where the committed state of a workload lies: in the memory of its node, and copied to durable storage.

Each version is a folder that the framework's own save function fills. A version counts once it has its manifest and
its final name; both come last, so that a crash in between leaves nothing that could be taken for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
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


@dataclass(frozen=True, kw_only=True)
class DurableCommits:
    """What one rank has on durable storage."""

    is_copying: bool
    """One more is on the way."""
    commits: frozenset[tuple[int, str]]
    """Version and id of each."""


def memory_root(run_id: str) -> Path:
    """The folder of a run in the memory of this node, or where DLRL_MEMORY says in the node's environment."""
    shared = Path("/dev/shm")
    fallback = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return Path(os.environ.get("DLRL_MEMORY") or fallback) / f"dlrl-{os.getuid()}" / run_id


class StateFolder:
    """The versions of one workload's state that this node can reach."""

    def __init__(self, *, run_id: str, workload: str, durable: str | None, node_id: str = "") -> None:
        # By node, so that several nodes on one machine do not see each other's memory either.
        self._memory = memory_root(run_id) / node_id / workload
        self._durable = Path(durable) / workload if durable else None
        self._copying = threading.Lock()
        self._being_copied: set[int] = set()
        self._durable_ids: dict[int, str] | None = None
        """What is on durable storage, read once: it may be slow, and a commit should not wait for it."""
        self._durable_on_all: int | None = None

    def begin(self, version: int) -> Path:
        """An empty folder to write this version to."""
        folder = self._memory / f"{version}.part"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def keep(self, commit: Commit, *, durable_on_all: int | None = None) -> None:
        """The version is written: from here on it counts. Older ones go, but the last.

        `durable_on_all` is the newest version that all ranks are known to have on durable storage.
        """
        self._durable_on_all = durable_on_all
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

    def durable(self) -> DurableCommits:
        """What is on durable storage, and whether more is on the way."""
        is_copying, known = bool(self._being_copied), self._known_durable()
        return DurableCommits(is_copying=is_copying, commits=frozenset(known.items()))

    def start_copy(self, version: int) -> None:
        """Copy a version to durable storage in the background, unless another one still is being copied."""
        if self._durable is None or self._being_copied:
            return
        self._being_copied.add(version)
        threading.Thread(target=self._copy_or_say, args=(version,), name="dlrl-durable", daemon=True).start()

    def _copy_or_say(self, version: int) -> None:
        try:
            self.copy_to_durable(version)
        except OSError as error:
            if not self._memory.exists():  # the run is over
                return
            what = f"commit {version} of workload '{self._memory.name}' could not be copied to durable storage"
            print(f"dlrl: {what}; the next one will be: {error}", file=sys.stderr, flush=True)

    def copy_to_durable(self, version: int) -> None:
        """Copy a version to durable storage, one at a time; returns when it is there to stay."""
        if self._durable is None:
            return
        self._being_copied.add(version)  # its files are not written over meanwhile
        try:
            with self._copying:
                self._copy(version, self._durable)
        finally:
            self._being_copied.discard(version)

    def _copy(self, version: int, durable: Path) -> None:
        source, target, part = self._memory / str(version), durable / str(version), durable / f"{version}.part"
        new = _read(source)
        if target.exists() and _read(target).id == new.id:
            return
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        _sync(part)
        if _read(source).id != new.id:
            raise FileNotFoundError(f"commit {version} was given up while it was copied")
        shutil.rmtree(target, ignore_errors=True)  # of the same number, but it never happened
        part.replace(target)
        _sync_folder(durable)
        self._durable_ids = {**self._known_durable(), version: new.id}
        self._prune(durable)

    def _known_durable(self) -> dict[int, str]:
        if self._durable_ids is None:
            root = self._durable
            self._durable_ids = {} if root is None else {one: _read(root / str(one)).id for one in _versions(root)}
        return self._durable_ids

    def _prune(self, durable: Path) -> None:
        """Older versions go, but the one that all ranks have: what is newer may be missing on another."""
        if self._durable_on_all is None:
            return
        known = self._known_durable()
        kept = {*sorted(known)[-_KEPT:], self._durable_on_all}
        self._durable_ids = {version: known[version] for version in known if version in kept}
        for version in known.keys() - kept:
            shutil.rmtree(durable / str(version), ignore_errors=True)

    def held(self) -> dict[int, Commit]:
        """Every version that can be loaded here."""
        found = {}
        for root in (self._durable, self._memory):
            for version in _versions(root):
                assert root is not None
                found[version] = _read(root / str(version))
        return found

    def forget_after(self, version: int) -> None:
        """Versions after this one never happened."""
        for root in (self._memory, self._durable):
            for newer in _versions(root):
                if root is not None and newer > version:
                    shutil.rmtree(root / str(newer), ignore_errors=True)
        self._durable_ids = None

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


def _read(folder: Path) -> Commit:
    return Commit.from_json((folder / _MANIFEST).read_text())


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
    """Remove what a run has left in the memory of this node; all of it is gone at once for those who still read it."""
    root = memory_root(run_id)
    with contextlib.suppress(OSError):
        root.rename(root.with_name(f"{run_id}-{uuid.uuid4().hex}"))
    for left in left_in_memory(run_id):  # also by one who was killed while it removed this
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.parent.rmdir()  # unless another run is there


def left_in_memory(run_id: str) -> list[Path]:
    """The folders of a run in the memory of this node, with those that are being removed."""
    return sorted(memory_root(run_id).parent.glob(f"{run_id}*"))
