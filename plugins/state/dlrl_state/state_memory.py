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
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_core.workload.state_keeper import Commit
from dlrl_state.alike_buffers import ALIGNED, AlikeCopying, alike_layout, copy_buffers, receive_alike
from dlrl_state.alike_content import AlikeContent, bytes_for, bytes_in, group_of
from dlrl_state.node_room import (
    BYTES,
    POOL,
    check_for_copy,
    drop_left,
    free_at,
    in_gb,
    part_in,
    push_out,
    release_alike,
)
from dlrl_state.run_memory import CLUSTER, LOCK, is_own, memory_roots, own_folder, run_folders, sweep
from dlrl_state.version_folder import (
    Fill,
    Piece,
    Span,
    Version,
    check_names,
    discard,
    fill_pieces,
    is_alive,
    mapped_file,
    pieces_of_files,
    publish,
    published,
    sizes_of_files,
    this_process,
    unused_parts,
)

_INDEX = "dlrl_state.json"

Result = TypeVar("Result")


class StateMemory:
    """The versions of one workload on this machine; `is_for_other`: held for one that runs on another machine."""

    def __init__(
        self, *, run_id: str, workload: str, role: str = "", cluster: str = "", is_for_other: bool = False
    ) -> None:
        self._run_id = run_id
        self._workload = workload
        self._role = role
        self._cluster = cluster
        self._root: Path | None = None
        self._locks: dict[Path, IO[str]] = {}
        self._mapped: dict[int, mmap.mmap] = {}
        """The files that this process has written, by inode: the two that are written over in turns."""
        self._writing = threading.RLock()
        """Held while a version is written or received: a part of this process that is there besides is left over."""
        self._pinned: set[str] = set()
        self._full: set[Path] = set()
        """Roots that had no room left when they were written to."""
        self._is_alike_checked = False
        self._is_for_other = is_for_other
        self._needed = 0
        """Bytes that have to be free for the version that is being written."""
        self._pushed: set[str] = set()

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

    def take_pushed(self) -> frozenset[str]:
        """The workloads whose copies were pushed out for versions of this one, since this was last asked for."""
        taken, self._pushed = self._pushed, set()
        return frozenset(taken)

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
        shutil.rmtree(root / POOL, ignore_errors=True)
        with part_in(root, commit) as part:
            fill(part)
            publish(part, commit, pieces := pieces_of_files(part))
            return sum(piece.size for piece in pieces)

    def _hold(self, run: Path) -> None:
        """Hold a lock on the run's folder as long as this process lives; it tells living runs from dead ones."""
        if run not in self._locks:
            file = (run / LOCK).open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._locks[run] = file

    def write(
        self,
        commit: Commit,
        keep: Collection[str],
        captured: CapturedState,
        on_copied: Callable[[], None] = lambda: None,
    ) -> float:
        """Copy the buffers and publish them; returns the processor time that this took.

        `on_copied` is called when the captured memory is not needed any more; other ranks may still copy what they hold
        alike with this one. All other versions but those to keep are removed first, or written over.
        """
        copied = threading.Event()

        def end() -> None:
            copied.set()
            on_copied()

        with self._writing:
            self._drop_left(keep)
            return self._with_room(lambda: self._write(commit, keep, captured, end), copied.is_set)

    def _drop_left(self, keep: Collection[str]) -> None:
        for version in [one for id_, one in self.held().items() if id_ in keep]:
            for run in run_folders(self._run_id):
                drop_left(run, self._workload, version)

    def _with_room(self, write: Callable[[], Result], is_too_late: Callable[[], bool] = lambda: False) -> Result:
        """Write; if memory was taken meanwhile, copies for other nodes are pushed out, then the next root is used."""
        while True:
            try:
                return write()
            except OSError as error:
                is_last = len(self._full) + 1 >= len(memory_roots())
                if error.errno != errno.ENOSPC or self._root is None or is_too_late():
                    raise
                if self._has_pushed_out(self._root.parent, self._needed):
                    continue
                if is_last:
                    raise
                self._full.add(self._root)
                self._root = None

    def _write(
        self, commit: Commit, keep: Collection[str], captured: CapturedState, on_copied: Callable[[], None]
    ) -> float:
        alike = alike_layout(captured, self._role)
        shared = alike.places if alike else {}
        places, end = {}, 0
        for name, buffer in captured.buffers.items():
            if name not in shared:
                places[name] = (end, buffer.size)
                end += -(-buffer.size // ALIGNED) * ALIGNED
        root = self._prepared(commit, keep, end + (alike.size if alike else 0), alike.group if alike else None)
        with part_in(root, commit) as part:
            pieces, seconds = _copied(captured, places, self._mapping(root, part, end))
            if alike is None:
                on_copied()
            else:
                content = self._content(root.parent / alike.group, commit, keep, alike.spans)
                copying = AlikeCopying(alike, captured, is_checked=not self._is_alike_checked)
                pieces += copying.write_to(content, part, on_copied)
                seconds += copying.cpu_s
                self._is_alike_checked = True
            index = {"layout": captured.layout, "places": {name: (BYTES, *place) for name, place in places.items()}}
            index["places"] |= {name: (alike.file, *place) for name, place in shared.items() if alike}
            (part / _INDEX).write_text(json.dumps(index))
            publish(part, commit, [*pieces, *pieces_of_files(part, but={piece.file for piece in pieces} | {BYTES})])
            return seconds

    def _content(
        self, group: Path, commit: Commit, keep: Collection[str], spans: Collection[Span], *, is_pulled: bool = False
    ) -> AlikeContent:
        def release() -> None:
            release_alike(group, keep, self._pinned)

        return AlikeContent(group, commit, self._workload, spans, release, is_pulled=is_pulled)

    def receive(self, commit: Commit, pieces: Sequence[Piece], keep: Collection[str], fill: Fill) -> None:
        """Publish a version that another process has written, unless it is here.

        Pieces that the newest version here has too are copied from that; `fill` gets the others, each with its memory.
        What ranks hold alike is got once a node. Raises OSError if their bytes are not those that were written.
        """
        try:
            check_names(pieces)
        except ValueError as error:
            raise OSError(str(error)) from None
        with self._writing:
            if commit.id not in self.held():
                if self._is_for_other:
                    size = sum(sizes_of_files(pieces).values())
                    check_for_copy(run_folders(self._run_id)[0], self._workload, size)
                self._with_room(lambda: self._receive(commit, pieces, keep, fill))

    def _receive(self, commit: Commit, pieces: Sequence[Piece], keep: Collection[str], fill: Fill) -> None:
        files: dict[str, list[Piece]] = {}
        for piece in pieces:
            files.setdefault(piece.file, []).append(piece)
        sizes = sizes_of_files(pieces)
        groups = {file: group for file in files if (group := group_of(file)) is not None}
        root = self._prepared(commit, keep, sum(sizes.values()), next(iter(groups.values()), None))
        before = published(root)
        with part_in(root, commit) as part:
            own = {file: self._file_view(root, part, file, size) for file, size in sizes.items() if file not in groups}
            targets = [(one, own[one.file][one.start : one.start + one.size]) for one in pieces if one.file in own]
            fill_pieces(targets, before, fill)
            for file, group in groups.items():
                spans = [one.span for one in files[file]]
                content = self._content(root.parent / group, commit, keep, spans, is_pulled=True)
                receive_alike(content, files[file], part, lambda wanted: fill_pieces(wanted, before, fill))
            publish(part, commit, pieces, is_replica=self._is_for_other)

    def _file_view(self, root: Path, part: Path, file: str, size: int) -> memoryview:
        if file == BYTES:
            memory = self._mapping(root, part, size)
        else:
            (part / file).parent.mkdir(parents=True, exist_ok=True)
            memory = mapped_file(part / file, size)
        return memoryview(memory) if memory is not None else memoryview(bytearray())

    def no_room(self, size: int) -> str | None:
        """Why there is no room for two versions of that size on this machine; None if there is."""
        try:
            self._chosen(size, is_tried=True)
        except OSError as error:
            return str(error.strerror)
        return None

    def _prepared(self, commit: Commit, keep: Collection[str], size: int, group: str | None = None) -> Path:
        """The folder to write to, with room for two versions of that size, after unneeded versions were removed."""
        mine = this_process()
        for root in self._own_roots():
            for part in unused_parts(root):
                shutil.rmtree(part, ignore_errors=True)
            for id_, version in published(root).items():
                is_mine = version.writer == mine or version.is_replica or not is_alive(version.writer)
                is_newer = (
                    version.commit.version >= commit.version
                )  # then this commit is of a trainer that was replaced
                if id_ not in keep and id_ not in self._pinned and is_mine and not is_newer:
                    discard(version.folder, kept_file=BYTES, kept_as=root / POOL if root == self._root else None)
        if self._root is None:
            self._root = self._chosen(size, group)
        if group is not None:
            own_folder(self._root.parent / group, below=self._root.parents[2])
        there = (self._root / POOL).stat().st_size if (self._root / POOL).exists() else 0
        there += bytes_for(self._root.parent / group, commit) if group else 0
        self._needed = max(0, size - there)
        if self._needed > free_at(self._root):
            self._has_pushed_out(self._root.parent, self._needed)
        return self._root

    def _has_pushed_out(self, run: Path, needed: int) -> bool:
        """Whether copies for other nodes gave way to a version of this workload, which runs here."""
        pushed = [] if self._is_for_other else push_out(run, self._workload, needed)
        self._pushed.update(pushed)
        return bool(pushed)

    def _chosen(self, size: int, group: str | None = None, *, is_tried: bool = False) -> Path:
        """The first folder with room for two versions; made, unless this is only tried. Raises OSError (ENOSPC)."""
        told: list[str] = []
        for root in memory_roots():
            folder = root / f"dlrl-{os.getuid()}" / self._run_id / self._workload
            if folder in self._full:
                told.append(f"'{root}' has no room left")
                continue
            free = shutil.disk_usage(root if root.exists() else root.parent).free
            held = [version for version in self.held().values() if version.folder.parent == folder]
            own = sum(one.size for version in held for one in version.pieces if group_of(one.file) is None)
            own += bytes_in(folder.parent / group) if group else 0
            if free + own < 2 * size and not is_tried and self._has_pushed_out(folder.parent, 2 * size - own):
                free = free_at(root)
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
            told.append(f"'{root}' has {in_gb(free)} free, and two versions of this state need {in_gb(2 * size)}")
        what = f"{'; '.join(told)}; give the container more shared memory, or set DLRL_MEMORY to another place"
        raise OSError(errno.ENOSPC, what)

    def _mapping(self, root: Path, part: Path, size: int) -> mmap.mmap | None:
        """The memory of the new version's file: that of an unneeded one if there is one of this size."""
        target, pool = part / BYTES, root / POOL
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
    targets = [(captured.buffers[name], view[start : start + size]) for name, (start, size) in places.items()]
    digests, seconds = copy_buffers(targets)
    return [Piece(BYTES, *place, digest) for place, digest in zip(places.values(), digests, strict=True)], seconds


def saved_state(folder: Path) -> SavedState | None:
    """The state that was captured into this folder; None if the folder has files of `save_state` instead."""
    if not (folder / _INDEX).exists():
        return None
    index = json.loads((folder / _INDEX).read_text())
    views = {file: _view_of(folder / file) for file in {BYTES, *(file for file, _, _ in index["places"].values())}}
    return SavedState(
        layout=index["layout"],
        buffers={name: views[file][start : start + size] for name, (file, start, size) in index["places"].items()},
    )


def _view_of(path: Path) -> memoryview:
    """A file's bytes, mapped; what is written to them does not reach the file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else bytearray())
