"""Durable storage at a URL such as s3://bucket/folder, through fsspec.

Object stores can't rename. So the bytes of a version are objects in a folder of one attempt, and its manifest, which
names the attempt, is written last: without it there is no version. Files are cut into objects of one request each: an
object is there whole or not at all, a copy is seen to move, and no upload in parts is left open by a process that dies.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import DlrlError
from dlrl_core.workload.state_keeper import Commit
from dlrl_state.durable_storage import CopyProgress, DurableStorage, within
from dlrl_state.version_folder import Piece, Version, folder_name, sizes_of_files

if TYPE_CHECKING:
    from dlrl_state.state_memory import StateMemory

_MANIFEST = "dlrl_commit.json"
_SCHEMA = 1
_OBJECT = 16 * 2**20
_AT_ONCE = 4
"""So many objects are sent or asked for together; what that takes in memory is this many times the size of one."""
_STILL_S = 60.0
"""A read is given up if no object comes for so long."""


def is_url(place: str) -> bool:
    return "://" in place


def check_url(url: str) -> None:
    """Raise DlrlError if fsspec, or what it needs for this kind of URL, is not installed."""
    if any(character in url for character in "*?["):
        raise DlrlError(f"durable storage '{url}' has a wildcard in its name: *, ? or [; choose another folder")
    try:
        from fsspec import get_filesystem_class
    except ImportError:
        raise DlrlError(
            f"durable storage '{url}' needs fsspec, which is not installed; on all nodes, run: "
            "pip install 'dlrl[fsspec]'"
        ) from None
    try:
        get_filesystem_class(url.partition("://")[0])
    except ImportError as error:
        raise DlrlError(f"durable storage '{url}' can't be used yet: {error}; do so on all nodes") from None
    except ValueError:
        raise DlrlError(
            f"durable storage '{url}': fsspec knows no storage of that kind; give a folder, or s3://..."
        ) from None


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    commit: Commit
    pieces: tuple[Piece, ...]
    attempt: str
    """The folder of its objects."""
    object_size: int

    def to_json(self) -> str:
        return json.dumps({"schema": _SCHEMA, **asdict(self)})

    @classmethod
    def from_json(cls, text: bytes) -> _Manifest | None:
        """None if it was not written by us."""
        try:
            told = json.loads(text)
            return cls(
                commit=Commit(**told["commit"]),
                pieces=tuple(Piece(**piece) for piece in told["pieces"]),
                attempt=PurePosixPath(told["attempt"]).name,
                object_size=int(told["object_size"]),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def objects(self) -> dict[str, tuple[str, int, int]]:
        """File, start and size of each object, by name. Names do not depend on those of the files."""
        return {
            f"{self.attempt}/{number}-{start // self.object_size}": (file, start, min(self.object_size, size - start))
            for number, (file, size) in enumerate(sizes_of_files(self.pieces).items())
            for start in range(0, size, self.object_size)
        }


class UrlStorage(DurableStorage):
    """The versions of one workload below a URL.

    Each operation opens the storage anew: one that hangs does not hold up others, renewed credentials are seen, and no
    listing comes from a cache.
    """

    def held(self) -> dict[str, Commit]:
        with _os_errors():
            storage, root = self._open()
            found = [_whole(storage, folder) for folder in _version_folders(storage, root)]
        return {one.commit.id: one.commit for one in found if one is not None}

    def write(self, version: Version, progress: CopyProgress) -> None:
        with _os_errors():
            storage, root = self._open()
            folder = f"{root}/{folder_name(version.commit)}"
            if _whole(storage, folder) is not None:
                return
            manifest = _Manifest(
                commit=version.commit, pieces=version.pieces, attempt=uuid.uuid4().hex, object_size=_OBJECT
            )
            try:
                _send(storage, folder, manifest, version, progress)
            except BaseException:
                _remove_attempt(storage, folder, manifest.attempt)
                raise

    def bring(self, commit: Commit, memory: StateMemory) -> Version:
        with _os_errors():
            storage, root = self._open()
            folder = f"{root}/{folder_name(commit)}"
            manifest = within(_STILL_S, lambda: _whole(storage, folder))
        if manifest is None:
            raise FileNotFoundError(f"there is no whole version of it in '{self.place}'")
        try:
            memory.receive(
                commit, manifest.pieces, list(memory.held()), lambda wanted: _fill(storage, folder, manifest, wanted)
            )
        except OSError as error:
            raise OSError(f"'{self.place}/{folder_name(commit)}': {error.strerror or error}") from error
        return memory.held()[commit.id]

    def remove(self, commit: Commit) -> None:
        with _os_errors():
            storage, root = self._open()
            _remove_version(storage, f"{root}/{folder_name(commit)}")

    def sweep(self, before: int) -> None:
        with _os_errors():
            storage, root = self._open()
            for folder in _version_folders(storage, root):
                if _version_of(folder) < before and _whole(storage, folder) is None:
                    _remove_version(storage, folder)

    def remove_all(self) -> None:
        with _os_errors(), contextlib.suppress(FileNotFoundError):
            storage, root = self._open()
            storage.rm(root, recursive=True)

    def _open(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        from fsspec.core import url_to_fs

        storage, path = url_to_fs(self.place, skip_instance_cache=True)
        return storage, str(path)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise as OSError what the libraries of stores raise."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # each library has errors of its own
        lines = str(error).strip().splitlines() or [""]
        raise OSError(f"{type(error).__name__}: {lines[0][:300]}") from error


# ---- which versions there are


def _version_folders(storage: Any, root: str) -> list[str]:
    try:
        names = [PurePosixPath(one["name"]).name for one in storage.ls(root, detail=True)]
    except FileNotFoundError:
        return []
    return [f"{root}/{name}" for name in names if _version_of(name) >= 0]


def _version_of(folder: str) -> int:
    """The version that a folder's name begins with; -1 if it is none of ours."""
    number, dash, _ = PurePosixPath(folder).name.partition("-")
    return int(number) if dash and number.isdecimal() else -1


def _whole(storage: Any, folder: str) -> _Manifest | None:
    """The manifest of a version, if there is one, and each of its objects has its size."""
    try:
        storage.info(f"{folder}/{_MANIFEST}")  # with all kinds of storage, this tells a missing one from other errors
        manifest = _Manifest.from_json(storage.cat_file(f"{folder}/{_MANIFEST}"))
        if manifest is None:
            return None
        needed = {PurePosixPath(name).name: size for name, (_, _, size) in manifest.objects().items()}
        found = storage.ls(f"{folder}/{manifest.attempt}", detail=True) if needed else []
    except FileNotFoundError:
        return None
    sizes = {PurePosixPath(one["name"]).name: one["size"] for one in found}
    return manifest if all(sizes.get(name) == size for name, size in needed.items()) else None


# ---- writing and removing


def _send(storage: Any, folder: str, manifest: _Manifest, version: Version, progress: CopyProgress) -> None:
    _make_folder(storage, f"{folder}/{manifest.attempt}")
    objects = manifest.objects()
    for names in _batched(objects):
        progress.check()
        storage.pipe({f"{folder}/{name}": _read(version, *objects[name]) for name in names})
        progress.moved()
    if version.damage_of(version.folder, progress.moved) is not None:
        raise OSError("it was changed while it was copied")
    progress.check()
    storage.pipe_file(f"{folder}/{_MANIFEST}", manifest.to_json().encode())


def _read(version: Version, file: str, start: int, size: int) -> bytes:
    with (version.folder / file).open("rb") as opened:
        opened.seek(start)
        return opened.read(size)


def _make_folder(storage: Any, path: str) -> None:
    """Make a folder and those above it, where there are folders. A bucket is never made: its name may be a mistake."""
    if "/" not in path or storage.isdir(path):
        return
    _make_folder(storage, path.rpartition("/")[0])
    with contextlib.suppress(FileExistsError):
        storage.mkdir(path, create_parents=False)


def _remove_version(storage: Any, folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        storage.rm_file(f"{folder}/{_MANIFEST}")
    with contextlib.suppress(FileNotFoundError):
        storage.rm(folder, recursive=True)


def _remove_attempt(storage: Any, folder: str, attempt: str) -> None:
    """Remove what a copy that failed has written; what can't be removed now is swept later."""
    with contextlib.suppress(Exception):
        storage.invalidate_cache()
        storage.rm(f"{folder}/{attempt}", recursive=True)
    with contextlib.suppress(Exception):
        storage.rmdir(folder)  # unless another attempt is there


# ---- reading


def _fill(storage: Any, folder: str, manifest: _Manifest, wanted: Sequence[tuple[Piece, memoryview]]) -> None:
    """Fill the memory of each piece from the objects that have its bytes; each object is asked for once."""
    objects, parts = manifest.objects(), _parts_by_object(manifest, wanted)
    for names in _batched(parts):
        sizes = [objects[name][2] for name in names]
        read = functools.partial(_read_objects, storage, [f"{folder}/{name}" for name in names], sizes)
        for name, size, data in zip(names, sizes, within(_STILL_S, read), strict=True):
            if len(data) != size:
                raise OSError(f"object '{name}' has {len(data)} bytes instead of {size}")
            for at, view in parts[name]:
                view[:] = data[at : at + len(view)]


def _read_objects(storage: Any, paths: list[str], sizes: list[int]) -> list[bytes]:
    with _os_errors():
        found: list[bytes] = storage.cat_ranges(paths, [0] * len(paths), sizes, on_error="raise")
    return found


def _parts_by_object(
    manifest: _Manifest, wanted: Sequence[tuple[Piece, memoryview]]
) -> dict[str, list[tuple[int, memoryview]]]:
    """For each object that is needed: where in it the bytes of pieces are, and the memory that they go to."""
    names = {(file, start): name for name, (file, start, _) in manifest.objects().items()}
    parts: dict[str, list[tuple[int, memoryview]]] = {}
    for piece, view in wanted:
        at = 0
        while at < len(view):
            offset = (piece.start + at) % manifest.object_size
            size = min(manifest.object_size - offset, len(view) - at)
            name = names[piece.file, piece.start + at - offset]
            parts.setdefault(name, []).append((offset, view[at : at + size]))
            at += size
    return parts


def _batched(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while batch := list(itertools.islice(left, _AT_ONCE)):
        yield batch
