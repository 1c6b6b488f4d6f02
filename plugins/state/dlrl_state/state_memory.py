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
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

import xxhash

from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_core.workload.state_keeper import Commit
from dlrl_state.run_memory import CLUSTER, LOCK, is_own, memory_roots, own_folder, run_folders, sweep
from dlrl_state.version_folder import (
    Piece,
    Version,
    discard,
    is_alive,
    new_part,
    pieces_of_files,
    publish,
    published,
    sizes_of_files,
    this_process,
    unused_parts,
)

_INDEX = "dlrl_state.json"
_BYTES = "dlrl_state.bytes"
_POOL = "pool"
_ALIGNED = 64
_LANES = 2

Result = TypeVar("Result")


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

    def set_counted(self, id_: str) -> None:
        """All ranks hold this commit."""
        version = self.held().get(id_)
        if version is not None and not version.is_counted:
            with contextlib.suppress(OSError):  # a disk that is read-only by now, or the run's end
                version.set_counted()

    def place(self) -> str:
        """Where this workload's state lies, or would, for messages."""
        return str(self._root or self._roots()[0])

    def _roots(self) -> list[Path]:
        return [folder / self._workload for folder in run_folders(self._run_id)]

    def _own_roots(self) -> list[Path]:
        """Those that are there and are this user's alone: what another user put there is never read."""
        pairs = zip(self._roots(), memory_roots(), strict=True)
        return [root for root, below in pairs if is_own(root, below=below)]

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
            file = (run / LOCK).open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._locks[run] = file

    def write(self, commit: Commit, keep: Collection[str], captured: CapturedState) -> float:
        """Copy the buffers and publish them; returns the processor time that this took.

        All other versions but those to keep are removed first, or written over.
        """
        return self._with_room(lambda: self._write(commit, keep, captured))

    def _with_room(self, write: Callable[[], Result]) -> Result:
        """Write; a root whose memory other ranks have taken meanwhile is left for the next one."""
        while True:
            try:
                return write()
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

    def receive(self, commit: Commit, pieces: Sequence[Piece], keep: Collection[str], fill: Fill) -> None:
        """Publish a version that another process has written, unless it is here.

        Pieces that the newest version here has too are copied from that; `fill` gets the others, each with its memory.
        Raises OSError if their bytes are not those that were written.
        """
        if commit.id not in self.held():
            self._with_room(lambda: self._receive(commit, pieces, keep, fill))

    def _receive(self, commit: Commit, pieces: Sequence[Piece], keep: Collection[str], fill: Fill) -> None:
        sizes = sizes_of_files(pieces)
        root = self._prepared(commit, keep, sum(sizes.values()))
        part = new_part(root, commit)
        try:
            views = {file: self._file_view(root, part, file, size) for file, size in sizes.items()}
            wanted = [(piece, views[piece.file][piece.start : piece.start + piece.size]) for piece in pieces]
            fill(_not_copied(wanted, published(root)))
            for piece, view in wanted:
                if xxhash.xxh3_64(view).hexdigest() != piece.digest:
                    raise OSError(f"byte {piece.start} of '{piece.file}', or one after it, is not what was written")
            publish(part, commit, pieces, is_replica=True)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _file_view(self, root: Path, part: Path, file: str, size: int) -> memoryview:
        if file == _BYTES:
            memory = self._mapping(root, part, size)
        else:
            (part / file).parent.mkdir(parents=True, exist_ok=True)
            memory = _mapped_file(part / file, size)
        return memoryview(memory) if memory is not None else memoryview(bytearray())

    def no_room(self, size: int) -> str | None:
        """Why there is no room for two versions of that size on this machine; None if there is."""
        try:
            self._chosen(size, is_tried=True)
        except OSError as error:
            return str(error.strerror)
        return None

    def _prepared(self, commit: Commit, keep: Collection[str], size: int) -> Path:
        """The folder to write to, with room for two versions of that size, after unneeded versions were removed."""
        mine = this_process()
        for root in self._own_roots():
            for part in unused_parts(root):
                shutil.rmtree(part, ignore_errors=True)
            for id_, version in published(root).items():
                is_mine = version.writer == mine or version.is_replica or not is_alive(version.writer)
                is_newer = version.commit.version > commit.version  # then this commit is of a trainer that was replaced
                if id_ not in keep and id_ not in self._pinned and is_mine and not is_newer:
                    discard(version.folder, kept_file=_BYTES, kept_as=root / _POOL if root == self._root else None)
        if self._root is None:
            self._root = self._chosen(size)
        return self._root

    def _chosen(self, size: int, *, is_tried: bool = False) -> Path:
        """The first folder with room for two versions; made, unless this is only tried. Raises OSError (ENOSPC)."""
        told: list[str] = []
        for root in memory_roots():
            folder = root / f"dlrl-{os.getuid()}" / self._run_id / self._workload
            if folder in self._full:
                told.append(f"'{root}' has no room left")
                continue
            free = shutil.disk_usage(root if root.exists() else root.parent).free
            own = sum(version.size for version in self.held().values() if version.folder.parent == folder)
            if free + own >= 2 * size and is_tried:
                return folder
            if free + own >= 2 * size:
                own_folder(folder, below=root)
                self._hold(folder.parent)
                (folder.parent / CLUSTER).write_text(self._cluster)
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


Fill = Callable[[Sequence[tuple[Piece, memoryview]]], None]


def _not_copied(
    wanted: Sequence[tuple[Piece, memoryview]], versions: Mapping[str, Version]
) -> list[tuple[Piece, memoryview]]:
    """Copy what the newest of the versions has, with the same checksum at the same place; returns the others."""
    newest = max(versions.values(), key=lambda version: version.commit.version, default=None)
    if newest is None:
        return list(wanted)
    known, files = set(newest.pieces), dict[str, IO[bytes]]()
    with contextlib.ExitStack() as stack:
        for piece, view in wanted:
            if piece in known and len(view):
                if piece.file not in files:
                    files[piece.file] = stack.enter_context((newest.folder / piece.file).open("rb", buffering=0))
                files[piece.file].seek(piece.start)
                _read_all(files[piece.file], view)
    return [(piece, view) for piece, view in wanted if piece not in known]


def _read_all(file: IO[bytes], view: memoryview) -> None:
    while len(view) and (read := file.readinto(view)):  # type: ignore[attr-defined]
        view = view[read:]


def _mapped_file(path: Path, size: int) -> mmap.mmap | None:
    """A new file of that size, as memory."""
    with path.open("w+b") as file:
        if not size:
            return None
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


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
