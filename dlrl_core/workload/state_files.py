"""The committed state of a workload: version folders in its node's memory, copies of them on durable storage.

Each version is a folder that the workload's `save_state` fills. A version counts once it has its manifest and its final
name; both are written last, so that a crash leaves nothing that could be mistaken for a whole version.
`save_buffers` and `load_buffers` write and read such a folder as fast as memory allows.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_KEPT = 2
"""Versions kept in memory and on durable storage: another rank may not hold the newest one."""
_MANIFEST = "dlrl_commit.json"
_POOL = "pool"
"""The folder of a version that is no longer needed. Its files are written over: a new file in memory costs three times
a copy, because the kernel has to find and clear its pages."""
_INDEX = "buffers.json"
_PIECE = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of the trainer; every rank writes it beside its state."""

    version: int
    id: str
    """Of this attempt: an attempt at the same version that failed has another id."""
    step: int
    """The trainer's own index of the step, from 0."""
    progress: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Commit:
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True)
class DurableCommits:
    """The commits of one rank on durable storage."""

    is_copying: bool
    """Another one is being copied there."""
    commits: frozenset[tuple[int, str]]
    """Version and id of each."""


def memory_root(run_id: str) -> Path:
    """The folder of a run in the memory of this node, or below DLRL_MEMORY if the node's environment sets it."""
    shared = Path("/dev/shm")
    fallback = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return Path(os.environ.get("DLRL_MEMORY") or fallback) / f"dlrl-{os.getuid()}" / run_id


class StateFolder:
    """The versions of one workload's state that can be read from this node."""

    def __init__(self, *, run_id: str, workload: str, durable: str | None, node_id: str = "") -> None:
        # By node, so that several nodes on one machine do not see each other's memory either.
        self._memory = memory_root(run_id) / node_id / workload
        self._durable = Path(durable) / workload if durable else None
        self._copying = threading.Lock()
        self._being_copied: set[int] = set()
        self._durable_ids: dict[int, str] | None = None
        """Versions on durable storage, read once: it may be slow, and a commit should not wait for it."""
        self._durable_on_all: int | None = None

    def begin(self, version: int) -> Path:
        """An empty folder to write this version to."""
        folder = self._memory / f"{version}.part"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def keep(self, commit: Commit, *, durable_on_all: int | None = None) -> None:
        """Publish the version that was written: it counts from here on. All older ones but one are removed.

        `durable_on_all` is the newest version that all ranks are known to have on durable storage.
        """
        self._durable_on_all = durable_on_all
        folder, target = self._memory / f"{commit.version}.part", self._memory / str(commit.version)
        (folder / _MANIFEST).write_text(commit.to_json())
        shutil.rmtree(target, ignore_errors=True)
        folder.replace(target)
        self._recycle()

    def _recycle(self) -> None:
        """Make the newest unneeded version the pool; the former pool is removed in the background."""
        old = [version for version in _versions(self._memory)[:-_KEPT] if version not in self._being_copied]
        if not old:
            return
        pool, unused = self._memory / _POOL, self._memory / f"unused-{uuid.uuid4().hex}"
        if pool.exists():
            pool.rename(unused)
            threading.Thread(target=shutil.rmtree, args=(unused, True), name="dlrl-recycle", daemon=True).start()
        (self._memory / str(old[-1])).rename(pool)
        for version in old[:-1]:
            shutil.rmtree(self._memory / str(version), ignore_errors=True)

    def durable(self) -> DurableCommits:
        """The versions on durable storage, and whether another is being copied there."""
        is_copying, known = bool(self._being_copied), self._known_durable()
        return DurableCommits(is_copying=is_copying, commits=frozenset(known.items()))

    def start_copy(self, version: int) -> None:
        """Copy a version to durable storage in the background, unless another one is still being copied."""
        if self._durable is None or self._being_copied:
            return
        self._being_copied.add(version)
        threading.Thread(target=self._copy_in_background, args=(version,), name="dlrl-durable", daemon=True).start()

    def _copy_in_background(self, version: int) -> None:
        """Copy; an error is printed, because no caller waits for it."""
        try:
            self.copy_to_durable(version)
        except OSError as error:
            if not self._memory.exists():  # the run is over
                return
            what = f"commit {version} of workload '{self._memory.name}' could not be copied to durable storage"
            print(f"dlrl: {what}; the next one will be: {error}", file=sys.stderr, flush=True)

    def copy_to_durable(self, version: int) -> None:
        """Copy a version to durable storage, one at a time; returns when it is synced there."""
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
        new = _manifest(source)
        if target.exists() and _manifest(target).id == new.id:
            return
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        for path in part.rglob("*"):
            if path.is_file():
                _sync(path)
        if _manifest(source).id != new.id:
            raise FileNotFoundError(f"commit {version} was given up while it was copied")
        shutil.rmtree(target, ignore_errors=True)  # an attempt at the same version that did not count
        part.replace(target)
        _sync(durable)
        self._durable_ids = {**self._known_durable(), version: new.id}
        self._prune(durable)

    def _known_durable(self) -> dict[int, str]:
        if self._durable_ids is None:
            root = self._durable
            self._durable_ids = {} if root is None else {one: _manifest(root / str(one)).id for one in _versions(root)}
        return self._durable_ids

    def _prune(self, durable: Path) -> None:
        """Remove older versions, except the newest that all ranks have: another rank may miss any newer one."""
        if self._durable_on_all is None:
            return
        known = self._known_durable()
        kept = {*sorted(known)[-_KEPT:], self._durable_on_all}
        self._durable_ids = {version: known[version] for version in known if version in kept}
        for version in known.keys() - kept:
            shutil.rmtree(durable / str(version), ignore_errors=True)

    def held(self) -> dict[int, Commit]:
        """Every version that can be loaded here."""
        roots = [root for root in (self._durable, self._memory) if root is not None]
        return {version: _manifest(root / str(version)) for root in roots for version in _versions(root)}

    def forget_after(self, version: int) -> None:
        """Remove all versions after this one: the trainer went back to it."""
        for root in (self._memory, self._durable):
            for newer in _versions(root):
                if root is not None and newer > version:
                    shutil.rmtree(root / str(newer), ignore_errors=True)
        self._durable_ids = None

    def folder_of(self, version: int) -> Path:
        """The folder to load a version from: in memory if it is there, else on durable storage."""
        in_memory = self._memory / str(version)
        if in_memory.exists() or self._durable is None:
            return in_memory
        return self._durable / str(version)


def _versions(root: Path | None) -> list[int]:
    if root is None or not root.is_dir():
        return []
    return sorted(int(one.name) for one in root.iterdir() if one.name.isdigit() and (one / _MANIFEST).is_file())


def _manifest(folder: Path) -> Commit:
    return Commit.from_json((folder / _MANIFEST).read_text())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_run(run_id: str) -> None:
    """Remove the state of a run from the memory of this node. It is renamed first, so that readers lose all at once."""
    root = memory_root(run_id)
    with contextlib.suppress(OSError):
        root.rename(root.with_name(f"{run_id}-{uuid.uuid4().hex}"))
    for left in left_in_memory(run_id):  # also of a process that was killed while it removed them
        shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.parent.rmdir()  # unless it holds another run


def left_in_memory(run_id: str) -> list[Path]:
    """The folders of a run in the memory of this node, with those that are being removed."""
    return sorted(memory_root(run_id).parent.glob(f"{run_id}*"))


# ---- for `save_state` and `load_state`


def save_buffers(folder: str | Path, buffers: Mapping[str, Any]) -> None:
    """Write contiguous buffers, such as numpy arrays, to the folder that `save_state` was given."""
    import numpy

    folder = Path(folder)
    index = {}
    for number, (name, buffer) in enumerate(buffers.items()):
        array = numpy.ascontiguousarray(buffer)
        index[name] = {"file": f"{number}.buffer", "dtype": array.dtype.str, "shape": list(array.shape)}
        _write_buffer(folder, f"{number}.buffer", memoryview(array.reshape(-1).view(numpy.uint8).data))
    (folder / _INDEX).write_text(json.dumps(index))


def load_buffers(folder: str | Path) -> dict[str, Any]:
    """The buffers of a folder, as read-only numpy arrays mapped from its files; copy those that are to be changed."""
    folder = Path(folder)
    index = json.loads((folder / _INDEX).read_text())
    return {name: _read_buffer(folder / one["file"], one["dtype"], one["shape"]) for name, one in index.items()}


_mapped: dict[int, mmap.mmap] = {}
"""Files that this process has written, by inode, mapped into its memory: writing them over is a single copy."""


def _write_buffer(folder: Path, file: str, view: memoryview) -> None:
    target = folder / file
    try:
        (folder.parent / _POOL / file).rename(target)
        known = _mapped.get(target.stat().st_ino)
    except FileNotFoundError:
        known = None
    if known is not None and len(known) == len(view):
        known[:] = view
    else:
        _write_new(target, view)
    _unmap_removed(folder.parent)


def _write_new(target: Path, view: memoryview) -> None:
    with target.open("r+b" if target.exists() else "w+b", buffering=0) as out:
        for start in range(0, len(view), _PIECE):
            out.write(view[start : start + _PIECE])
        out.truncate(len(view))
        if len(view):
            _mapped[target.stat().st_ino] = mmap.mmap(out.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _unmap_removed(folder: Path) -> None:
    """Free the memory of files that were removed."""
    present = set()
    for version in list(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # it is being removed
            present |= {path.stat().st_ino for path in version.glob("*.buffer")}
    for inode in set(_mapped) - present:
        _mapped.pop(inode).close()


def _read_buffer(path: Path, dtype: str, shape: list[int]) -> Any:
    import numpy

    if path.stat().st_size == 0:
        return numpy.zeros(shape, dtype=dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return numpy.frombuffer(mapped, dtype=dtype).reshape(shape)
