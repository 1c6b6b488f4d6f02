"""One committed version of a rank's state as a folder: files, and a manifest that is written last.

A folder counts as whole if its manifest can be read and every file has the size that the manifest says. Its name has
the version and the id of the commit, so that two attempts never share one; under its final name it is not written to.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import xxhash

from dlrl_core.workload.process import started_at
from dlrl_core.workload.state_keeper import Commit

_MANIFEST = "dlrl_commit.json"
_COUNTED = "counted"
_WANTED = "wanted"
_PART = "part-"
_DAMAGED = "damaged-"
_READ = 16 * 2**20
_SCHEMA = 1


Span = tuple[int, int]
"""Start and size of a range of a file."""


@dataclass(frozen=True)
class Piece:
    """A range of bytes of a file, and their checksum."""

    file: str
    start: int
    size: int
    digest: str

    @property
    def span(self) -> Span:
        return self.start, self.size


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version that is whole: its folder and what the manifest says."""

    folder: Path
    commit: Commit
    pieces: tuple[Piece, ...]
    writer: tuple[int, int]
    """Process id and start, in the kernel's ticks since it booted, of the process that wrote it."""
    is_replica: bool = False
    """Whether it is a copy that a process of another workload holds for this one."""

    @property
    def is_counted(self) -> bool:
        """Whether all ranks are known to have held it."""
        return (self.folder / _COUNTED).exists()

    @property
    def is_wanted(self) -> bool:
        """Whether a way back has found it, and may need it."""
        return (self.folder / _WANTED).exists()

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    def set_wanted(self) -> None:
        (self.folder / _WANTED).touch()

    def set_counted(self) -> None:
        (self.folder / _COUNTED).touch()

    def set_aside(self) -> None:
        """Give the folder a name under which it is no version; it is removed with the run."""
        with contextlib.suppress(OSError):
            self.folder.rename(self.folder.with_name(f"{_DAMAGED}{self.folder.name}"))

    def damage(self) -> str | None:
        """What differs from the manifest, byte for byte, in one sentence; None if nothing does."""
        return self.damage_of(self.folder)

    def damage_of(self, folder: Path, on_piece: Callable[[], None] = lambda: None) -> str | None:
        """The same for a copy of the files in another folder; `on_piece` is called on the way."""
        for piece in self.pieces:
            path = folder / piece.file
            on_piece()
            try:
                is_whole = digest_of(path, piece.start, piece.size) == piece.digest
            except OSError as error:
                return f"'{path}' can't be read: {error.strerror or error}"
            if not is_whole:
                return (
                    f"'{path}' is damaged: bytes {piece.start} to {piece.start + piece.size} are not what was written"
                )
        return None


def sizes_of_files(pieces: Iterable[Piece]) -> dict[str, int]:
    """How long the files of these pieces have to be, in the order of their names."""
    sizes: dict[str, int] = {}
    for piece in sorted(pieces, key=lambda piece: piece.file):
        sizes[piece.file] = max(sizes.get(piece.file, 0), piece.start + piece.size)
    return sizes


def check_names(pieces: Iterable[Piece]) -> None:
    """Raise ValueError if a file is outside of its version: a manifest may come from storage that others write to."""
    for file in {piece.file for piece in pieces}:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"a version has no file '{file}'")


def folder_name(commit: Commit) -> str:
    """The name of a published version: unique, as the id is."""
    return f"{commit.version}-{commit.id}"


def this_process() -> tuple[int, int]:
    """Process id and start: together they name one process of this machine, whatever its clock does."""
    return os.getpid(), started_at(os.getpid())


def is_alive(process: tuple[int, int]) -> bool:
    return started_at(process[0]) == process[1] > 0


def digest_of(path: Path, start: int, size: int) -> str:
    """The checksum of a range of a file."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        file.seek(start)
        while size > 0 and (read := file.read(min(size, _READ))):
            digest.update(read)
            size -= len(read)
    return digest.hexdigest()


def new_part(root: Path, commit: Commit) -> Path:
    """An empty folder of this process's own, to write a version to."""
    pid, started = this_process()
    part = root / f"{_PART}{pid}-{started}-{commit.version}-{uuid.uuid4().hex}"
    part.mkdir(mode=0o700)
    return part


def mapped_file(path: Path, size: int) -> mmap.mmap | None:
    """A new file of that size, as memory."""
    with path.open("w+b") as file:
        if not size:
            return None
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def pieces_of_files(folder: Path, *, but: Collection[str] = ()) -> list[Piece]:
    """Every file in the folder but those, as one piece each."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in but)
    return [
        Piece(str(path.relative_to(folder)), 0, size := path.stat().st_size, digest_of(path, 0, size)) for path in files
    ]


Fill = Callable[[Sequence[tuple[Piece, memoryview]]], None]
"""Gets the bytes of pieces from another process, each to its memory."""


def fill_pieces(wanted: Sequence[tuple[Piece, memoryview]], before: Mapping[str, Version], fill: Fill) -> None:
    """Write the bytes of pieces: those that the newest version before has too, from there; the others by `fill`.

    Raises OSError if they are not what the pieces say.
    """
    fill(_not_copied(wanted, before))
    for piece, view in wanted:
        if xxhash.xxh3_64(view).hexdigest() != piece.digest:
            raise OSError(f"byte {piece.start} of '{piece.file}', or one after it, is not what was written")


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


def publish(
    part: Path,
    commit: Commit,
    pieces: Iterable[Piece],
    *,
    is_synced: bool = False,
    is_replica: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Write the manifest and give the folder its final name, unless `check` raises.

    One of that name stays, and the part is removed.
    """
    target = part.with_name(folder_name(commit))
    writer = this_process()
    manifest = {
        "schema": _SCHEMA,
        "commit": asdict(commit),
        "pieces": [asdict(one) for one in pieces],
        "writer": writer,
        "is_replica": is_replica,
    }
    (part / _MANIFEST).write_text(json.dumps(manifest))
    if is_synced:
        _sync_tree(part)
    check()
    try:
        part.rename(target)  # fails if there is one: a folder with files in it is never replaced
    except OSError:
        if read_version(target) is None:  # what is left of one that was removed while it was written
            discard(target)
            part.rename(target)
        else:
            shutil.rmtree(part, ignore_errors=True)
    if is_synced:
        sync(target.parent)
    return target


def published(root: Path) -> dict[str, Version]:
    """The whole versions below a folder, by the id of their commit."""
    found = [read_version(folder) for folder in _folders(root) if not is_part(folder)]
    return {one.commit.id: one for one in found if one is not None}


def is_part(folder: Path) -> bool:
    """Whether the folder is no version: it is being written, was left by a process that died, or is damaged."""
    return folder.name.startswith((_PART, _DAMAGED))


def unused_parts(root: Path) -> list[Path]:
    """Parts whose process is gone, or is this one, which writes one at a time below a root."""
    parts = [folder for folder in _folders(root) if folder.name.startswith(_PART)]
    return [part for part in parts if (writer := _writer_of(part)) in (None, this_process()) or _is_dead(writer)]


def dead_parts(root: Path) -> list[Path]:
    """Parts whose process is gone."""
    return [folder for folder in _folders(root) if folder.name.startswith(_PART) and _is_dead(_writer_of(folder))]


def _writer_of(part: Path) -> tuple[int, int] | None:
    """None if it is what is left of a version that was being removed."""
    try:
        pid, started, *_ = part.name.removeprefix(_PART).split("-")
        return int(pid), int(started)
    except ValueError:
        return None


def _is_dead(writer: tuple[int, int] | None) -> bool:
    return writer is not None and not is_alive(writer)


def discard(folder: Path, *, kept_file: str | None = None, kept_as: Path | None = None) -> None:
    """Remove a version, all of it at once for readers; one of its files may be kept under another name."""
    gone = folder.with_name(f"{_PART}{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        folder.rename(gone)
        if kept_file and kept_as and not kept_as.exists():
            (gone / kept_file).rename(kept_as)
    shutil.rmtree(gone, ignore_errors=True)


def give_back(path: Path) -> bool:
    """Remove a version, or a file, and free its memory now, even if a process has mapped it; False if it is gone.

    What other versions have a link to stays.
    """
    gone = path.with_name(f"{_PART}{uuid.uuid4().hex}")
    try:
        path.rename(gone)  # from here on no process finds it, and none takes it to write over it
    except OSError:
        return False
    for file in [one for one in (gone, *gone.rglob("*")) if one.is_file() and one.stat().st_nlink == 1]:
        os.truncate(file, 0)
    shutil.rmtree(gone, ignore_errors=True) if gone.is_dir() else gone.unlink(missing_ok=True)
    return True


def _folders(root: Path) -> Iterator[Path]:
    try:
        yield from (path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return


def read_version(folder: Path) -> Version | None:
    """The version in a folder; None if it is not whole."""
    try:
        seen = (folder / _MANIFEST).stat()
        version, sizes = _read_manifest(folder, seen.st_ino, seen.st_mtime_ns)
        if any((folder / file).stat().st_size < size for file, size in sizes.items()):
            return None
        return version
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is being removed, or was not written by us


@functools.lru_cache(maxsize=32)
def _read_manifest(folder: Path, inode: int, changed_ns: int) -> tuple[Version, dict[str, int]]:
    """The version that a manifest tells of, and the sizes of its files. Large models have thousands of pieces a rank,
    and the versions of a node are looked through several times in each commit: each manifest is read once."""
    told = json.loads((folder / _MANIFEST).read_text())
    pieces = tuple(Piece(**piece) for piece in told["pieces"])
    check_names(pieces)
    pid, started = told["writer"]
    version = Version(
        folder=folder,
        commit=Commit(**told["commit"]),
        pieces=pieces,
        writer=(pid, started),
        is_replica=told.get("is_replica", False),
    )
    return version, sizes_of_files(pieces)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Have a file or a folder written to its storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
