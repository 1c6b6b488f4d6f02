"""The committed versions of a rank in the memory of its machine, and how a new one is written there.

At most two versions lie in memory: the last that counts, and the one that is being written or waits to count. The large
file of a version that is no longer needed is written over: a new file costs three times a copy, because the kernel has
to find and clear its pages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import xxhash

from dlrl_core.errors import DlrlError
from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_core.workload.version_folder import (
    Commit,
    Piece,
    Version,
    discard,
    is_alive,
    new_part,
    pieces_of_files,
    publish,
    published,
    this_process,
    unused_parts,
)

_INDEX = "dlrl_state.json"
_BYTES = "dlrl_state.bytes"
_POOL = "pool"
_LOCK = "lock"
_CLUSTER = "cluster"
_ALIGNED = 64
_LANES = 2
_OLD_S = 24 * 3600.0
_ANSWER_S = 5.0


def memory_roots() -> list[Path]:
    """Where state may be kept on this machine, best first: DLRL_MEMORY alone if set, else memory, then the disk."""
    if given := os.environ.get("DLRL_MEMORY"):
        return [Path(given)]
    shared = Path("/dev/shm")
    return [*([shared] if os.access(shared, os.W_OK) else []), Path(tempfile.gettempdir())]


def run_folders(run_id: str) -> list[Path]:
    """The folder of a run below each of the roots; they need not exist."""
    return [root / f"dlrl-{os.getuid()}" / run_id for root in memory_roots()]


def _is_own(path: Path, *, below: Path) -> bool:
    """Whether the folder is there and each level of it below `below` is this user's alone."""
    levels = [path, *path.parents]
    try:
        return all(_is_alone(level.lstat()) for level in levels[: levels.index(below)])
    except OSError:
        return False


def _is_alone(seen: os.stat_result) -> bool:
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077


def own_folder(path: Path, *, below: Path) -> Path:
    """The folder, made if it is missing. Raises DlrlError if a level of it below `below` is not this user's alone."""
    below.mkdir(parents=True, exist_ok=True)
    current = below
    for name in path.relative_to(below).parts:
        current = current / name
        with contextlib.suppress(FileExistsError):
            current.mkdir(mode=0o700)
        seen = current.lstat()
        if not _is_alone(seen):
            raise DlrlError(
                f"'{current}' is no folder of this user alone (owner {seen.st_uid}, mode "
                f"{stat.filemode(seen.st_mode)}); remove it, or set DLRL_MEMORY to another place"
            )
    return path


class StateMemory:
    """The versions of one workload on this machine."""

    def __init__(self, *, run_id: str, workload: str, cluster: str = "") -> None:
        self._run_id = run_id
        self._workload = workload
        self._cluster = cluster
        self._root: Path | None = None
        self._locks: dict[Path, IO[str]] = {}
        self._mapped: dict[int, mmap.mmap] = {}
        """The files that this process has written, by inode: the two that are written over in turns."""
        self._pinned: set[str] = set()
        self._full: set[Path] = set()
        """Roots that had no room left when they were written to."""

    def held(self) -> dict[str, Version]:
        """All whole versions, by the id of their commit."""
        roots = self._own_roots()
        for root in roots:
            self._hold(root.parent)
        return {one: found for root in roots for one, found in published(root).items()}

    def place(self) -> str:
        """Where this workload's state lies, or would, for messages."""
        return str(self._root or self._roots()[0])

    def _roots(self) -> list[Path]:
        return [folder / self._workload for folder in run_folders(self._run_id)]

    def _own_roots(self) -> list[Path]:
        """Those that are there and are this user's alone: what another user put there is never read."""
        pairs = zip(self._roots(), memory_roots(), strict=True)
        return [root for root, below in pairs if _is_own(root, below=below)]

    def pin(self, id_: str) -> None:
        """Do not remove this version until it is unpinned."""
        self._pinned.add(id_)

    def unpin(self, id_: str) -> None:
        self._pinned.discard(id_)

    @contextlib.contextmanager
    def pinned(self, version: Version) -> Iterator[None]:
        """Meanwhile, the version is not removed by this process."""
        self.pin(version.commit.id)
        try:
            yield
        finally:
            self.unpin(version.commit.id)

    # ---- writing

    def write_files(self, commit: Commit, keep: Collection[str], fill: Callable[[Path], None]) -> int:
        """Publish the files that `fill` writes to a folder; returns their size.

        All other versions but those to keep are removed first.
        """
        root = self._prepared(commit, keep, 0)
        shutil.rmtree(root / _POOL, ignore_errors=True)
        part = new_part(root, commit)
        try:
            fill(part)
            publish(part, commit, pieces := pieces_of_files(part))
            return sum(piece.size for piece in pieces)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _hold(self, run: Path) -> None:
        """Hold a lock on the run's folder as long as this process lives; it tells living runs from dead ones."""
        if run not in self._locks:
            file = (run / _LOCK).open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._locks[run] = file

    def write(self, commit: Commit, keep: Collection[str], captured: CapturedState) -> float:
        """Copy the buffers and publish them; returns the processor time that this took.

        All other versions but those to keep are removed first, or written over. A root whose memory other ranks have
        taken meanwhile is left for the next one.
        """
        while True:
            try:
                return self._write(commit, keep, captured)
            except OSError as error:
                if error.errno != errno.ENOSPC or self._root is None or len(self._full) + 1 >= len(memory_roots()):
                    raise
                self._full.add(self._root)
                self._root = None

    def _write(self, commit: Commit, keep: Collection[str], captured: CapturedState) -> float:
        places, end = {}, 0
        for name, buffer in captured.buffers.items():
            places[name] = (end, buffer.size)
            end += -(-buffer.size // _ALIGNED) * _ALIGNED
        root = self._prepared(commit, keep, end)
        part = new_part(root, commit)
        try:
            memory = self._mapping(root, part, end)
            pieces, seconds = _copied(captured, places, memory)
            index = {"layout": captured.layout, "places": places}
            (part / _INDEX).write_text(json.dumps(index))
            publish(part, commit, [*pieces, *pieces_of_files(part, but=_BYTES)])
            return seconds
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _prepared(self, commit: Commit, keep: Collection[str], size: int) -> Path:
        """The folder to write to, with room for two versions of that size, after unneeded versions were removed."""
        mine = this_process()
        for root in self._own_roots():
            for part in unused_parts(root):
                shutil.rmtree(part, ignore_errors=True)
            for id_, version in published(root).items():
                is_mine = version.writer == mine or not is_alive(version.writer)
                is_newer = version.commit.version > commit.version  # then this commit is of a trainer that was replaced
                if id_ not in keep and id_ not in self._pinned and is_mine and not is_newer:
                    discard(version.folder, kept_file=_BYTES, kept_as=root / _POOL if root == self._root else None)
        if self._root is None:
            self._root = self._chosen(size)
        return self._root

    def _chosen(self, size: int) -> Path:
        told: list[str] = []
        for root in memory_roots():
            folder = root / f"dlrl-{os.getuid()}" / self._run_id / self._workload
            if folder in self._full:
                told.append(f"'{root}' has no room left")
                continue
            free = shutil.disk_usage(root if root.exists() else root.parent).free
            own = sum(version.size for version in self.held().values() if version.folder.parent == folder)
            if free + own >= 2 * size:
                own_folder(folder, below=root)
                self._hold(folder.parent)
                (folder.parent / _CLUSTER).write_text(self._cluster)
                threading.Thread(target=sweep, args=(self._run_id,), name="dlrl-sweep", daemon=True).start()
                if told:
                    print(f"dlrl: {told[0]}; commits of '{self._workload}' go to '{root}' instead", flush=True)
                return folder
            told.append(f"'{root}' has {_gb(free)} free, and two versions of this state need {_gb(2 * size)}")
        what = f"{'; '.join(told)}; give the container more shared memory, or set DLRL_MEMORY to another place"
        raise OSError(errno.ENOSPC, what)

    def _mapping(self, root: Path, part: Path, size: int) -> mmap.mmap | None:
        """The memory of the new version's file: that of an unneeded one if there is one of this size."""
        target, pool = part / _BYTES, root / _POOL
        with contextlib.suppress(FileNotFoundError):
            pool.rename(target)
        if not size:
            target.touch()
            return None
        with target.open("r+b" if target.exists() else "w+b", buffering=0) as file:
            inode, old = os.fstat(file.fileno()).st_ino, os.fstat(file.fileno()).st_size
            if old == size and inode in self._mapped:
                return self._mapped[inode]
            if old > size:
                os.ftruncate(file.fileno(), size)
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and not a signal later
            self._mapped.pop(inode, None)
            while len(self._mapped) > 1:
                del self._mapped[next(iter(self._mapped))]
            self._mapped[inode] = mmap.mmap(file.fileno(), size)
            return self._mapped[inode]


def _copied(
    captured: CapturedState, places: dict[str, tuple[int, int]], memory: mmap.mmap | None
) -> tuple[list[Piece], float]:
    view = memoryview(memory) if memory is not None else memoryview(bytearray())

    def copy(name: str) -> tuple[Piece, float]:
        start, size = places[name]
        began, target = time.thread_time(), view[start : start + size]
        captured.buffers[name].copy_to(target)
        return Piece(_BYTES, start, size, xxhash.xxh3_64(target).hexdigest()), time.thread_time() - began

    by_size = sorted(places, key=lambda name: -places[name][1])
    with ThreadPoolExecutor(_LANES, thread_name_prefix="dlrl-copy") as lanes:
        copies = list(lanes.map(copy, by_size))
    return [piece for piece, _ in copies], sum(seconds for _, seconds in copies)


def saved_state(folder: Path) -> SavedState | None:
    """The state that was captured into this folder; None if the folder has files of `save_state` instead."""
    if not (folder / _INDEX).exists():
        return None
    index = json.loads((folder / _INDEX).read_text())
    with (folder / _BYTES).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        view = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else bytearray())
    return SavedState(
        layout=index["layout"],
        buffers={name: view[start : start + size] for name, (start, size) in index["places"].items()},
    )


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB"


# ---- runs that are over


def sweep(except_run: str = "") -> list[Path]:
    """Remove what dead runs left on this machine; returns their folders."""
    dead = dead_runs(except_run=except_run)
    for run in dead:
        shutil.rmtree(run, ignore_errors=True)
    return dead


def dead_runs(*, except_run: str = "") -> list[Path]:
    """Folders of runs of which no process lives on this machine, and whose cluster is gone, or that are a day old.

    A run whose processes on this machine are just being restarted has none for a moment; its cluster is there.
    """
    homes = [root / f"dlrl-{os.getuid()}" for root in memory_roots()]
    found = [run for home in homes if home.is_dir() for run in home.iterdir() if run.is_dir()]
    unused = [run for run in found if run.name != except_run and _is_unused(run)]
    return [run for run in unused if _is_cluster_gone(run) or _age_s(run) > _OLD_S]


def _is_cluster_gone(run: Path) -> bool:
    """Whether the cluster of the run was on this machine and nothing answers at its address."""
    with contextlib.suppress(OSError, ValueError):
        host, _, port = (run / _CLUSTER).read_text().rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except ConnectionRefusedError:
            return True  # a machine that is gone would not refuse
    return False


def _age_s(run: Path) -> float:
    return time.time() - max((path.stat().st_mtime for path in (run, *run.glob("*"))), default=0.0)


def _is_unused(run: Path) -> bool:
    try:
        with (run / _LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def forget_run(run_id: str) -> None:
    """Remove the state of a run from this machine. It is renamed first, so that readers lose all at once."""
    for folder in run_folders(run_id):
        with contextlib.suppress(OSError):
            folder.rename(folder.with_name(f"{run_id}-{uuid.uuid4().hex}"))
    for left in left_in_memory(run_id):  # also of a process that was killed while it removed them
        shutil.rmtree(left, ignore_errors=True)
    for folder in run_folders(run_id):
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # unless it holds another run


def left_in_memory(run_id: str) -> list[Path]:
    """The folders of a run on this machine, with those that are being removed."""
    return sorted(left for folder in run_folders(run_id) for left in folder.parent.glob(f"{run_id}*"))
