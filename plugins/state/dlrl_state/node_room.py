"""The memory of a node: its own ranks share it with the copies that it holds for ranks of other nodes.

Own versions come first. A copy is refused if a rank of this node would lack room for its second version, and is pushed
out if a rank finds no room. A copy that a way back has found is marked as wanted, and stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dlrl_core.workload.state_keeper import Commit
from dlrl_state.alike_content import GROUPS, drop_unused
from dlrl_state.version_folder import (
    Version,
    dead_parts,
    discard,
    give_back,
    is_alive,
    is_part,
    new_part,
    published,
    read_version,
)

_GUARD = "copies"
_GUARD_S = 10.0
_LOOK_S = 0.01
BYTES = "dlrl_state.bytes"
"""The large file of a version, which is written over when the version is not needed any more."""
POOL = "pool"
"""Such a file between two versions."""


@contextlib.contextmanager
def part_in(root: Path, commit: Commit) -> Iterator[Path]:
    """An empty folder to write a version to; it is removed unless it is published."""
    part = new_part(root, commit)
    try:
        yield part
    except BaseException:
        with contextlib.suppress(OSError):  # it is mapped: removed, its pages would stay
            if not (root / POOL).exists():
                (part / BYTES).rename(root / POOL)
        shutil.rmtree(part, ignore_errors=True)
        raise


def free_at(place: Path) -> int:
    """Bytes that are free on the file system of a place that need not exist yet."""
    return shutil.disk_usage(next((one for one in (place, *place.parents) if one.exists()), "/")).free


def in_gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB"


def check_for_copy(run: Path, workload: str, size: int) -> None:
    """Raise OSError (ENOSPC) if a copy of another node's workload would take the room of the ranks of this one.

    A rank that holds one version of its own needs room for a second.
    """
    single = [found[0] for one in _workloads(run, workload) if len(found := _version_folders(one)) == 1]
    needed = sum(one.size for one in map(read_version, single) if one is not None and not one.is_replica)
    free = free_at(run)
    if needed and free < size + needed:
        need = f"it needs {in_gb(size)}, and the ranks of that node {in_gb(needed)}"
        raise OSError(errno.ENOSPC, f"'{run.parents[1]}' has {in_gb(free)} free; {need}")


def push_out(run: Path, workload: str, needed: int) -> list[str]:
    """Remove copies for other nodes until a workload of this one has so many bytes; returns whose they were.

    Those of commits that do not count yet go first. None goes if all of them are too small.
    """
    with _guarded(run):
        copies = [one for folder in _workloads(run, workload) for one in published(folder).values() if one.is_replica]
        loose = [one for one in copies if not one.is_wanted]
        if free_at(run) + sum(one.size for one in loose) + _pool_bytes(copies) < needed:
            return []
        for folder in {one.folder.parent for one in copies}:
            give_back(folder / POOL)
        return [one.folder.parent.name for one in sorted(loose, key=_need) if _is_pushed(one, run, needed)]


def _need(version: Version) -> tuple[bool, int]:
    return version.is_counted, version.commit.version


def _is_pushed(version: Version, run: Path, needed: int) -> bool:
    if free_at(run) >= needed or not give_back(version.folder):
        return False
    for group in run.glob(GROUPS):
        drop_unused(group)
    return True


def _pool_bytes(copies: Collection[Version]) -> int:
    pools = {one.folder.parent / POOL for one in copies}
    return sum(pool.stat().st_size for pool in pools if pool.exists())


def want(versions: Mapping[str, Version]) -> dict[str, Version]:
    """Those that are still there; copies among them are marked, so that none is pushed out while it is needed."""
    found: dict[str, Version] = {}
    for id_, version in versions.items():
        with _guarded(version.folder.parents[1]), contextlib.suppress(OSError):  # a disk that is read-only by now
            if version.is_replica and version.folder.exists():
                version.set_wanted()
        if version.folder.exists():
            found[id_] = version
    return found


def drop_left(run: Path, workload: str, kept: Version) -> None:
    """Remove what workloads that moved to another node have left here, once a commit counts that they have elsewhere.

    A workload whose folder has that commit, or a newer one, is left to itself: its next version is written over an old
    one. A version is only removed if the process that wrote it is dead, or if it is a copy.
    """
    for folder in _workloads(run, workload):
        found = _version_folders(folder)
        if found and all(_number(one) < kept.commit.version for one in found):
            left = [one for one in map(read_version, found) if one and (one.is_replica or not is_alive(one.writer))]
            for one in left:
                discard(one.folder) if one.is_wanted else give_back(one.folder)
            if len(left) == len(found):
                give_back(folder / POOL)


def release_alike(group: Path, keep: Collection[str], pinned: Collection[str]) -> None:
    """Remove what no process will: versions, of any workload, that have a link to the content of a group.

    They are of a process that died, or copies for another node, and older than one to keep that is there too. A copy
    would be removed when the next one comes, which is after the ranks here have written that version.
    """
    commits = {folder.name: folder.name.partition("-") for folder in group.glob("*-*")}
    kept = [(int(version), name) for name, (version, _, id_) in commits.items() if id_ in keep]
    for newest, name in kept:
        for held in group.parent.glob(f"*/{name}"):
            for old in [held.with_name(one) for one, (version, _, _) in commits.items() if int(version) < newest]:
                if (found := read_version(old)) is not None and _is_left(found, pinned) and read_version(held):
                    discard(old, kept_file=BYTES, kept_as=old.parent / POOL)
    for part in [part for root in group.parent.iterdir() for part in dead_parts(root)]:
        shutil.rmtree(part, ignore_errors=True)


def _is_left(version: Version, pinned: Collection[str]) -> bool:
    return version.commit.id not in pinned and (version.is_replica or not is_alive(version.writer))


def _workloads(run: Path, but: str) -> list[Path]:
    """The folders of the other workloads of a run, without reading what is in them."""
    groups = set(run.glob(GROUPS))
    return [one for one in run.glob("*-*") if one.name != but and one not in groups and one.is_dir()]


def _version_folders(folder: Path) -> list[Path]:
    return [one for one in folder.glob("*-*") if not is_part(one) and one.name.partition("-")[0].isdecimal()]


def _number(folder: Path) -> int:
    return int(folder.name.partition("-")[0])


@contextlib.contextmanager
def _guarded(run: Path) -> Iterator[None]:
    """No other process of this node marks or pushes out meanwhile, unless one that is frozen has the lock."""
    try:
        file = (run / _GUARD).open("a")
    except OSError:
        yield
        return
    until = time.monotonic() + _GUARD_S
    with file:
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOOK_S)
        yield
