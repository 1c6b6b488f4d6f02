"""Where runs keep state on a machine: folders of this user alone, what dead runs left in them, and their removal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
import uuid
from pathlib import Path

from dlrl_core.errors import DlrlError

LOCK = "lock"
CLUSTER = "cluster"
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


def is_own(path: Path, *, below: Path) -> bool:
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
        host, _, port = (run / CLUSTER).read_text().rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except ConnectionRefusedError:
            return True  # a machine that is gone would not refuse
    return False


def _age_s(run: Path) -> float:
    return time.time() - max((path.stat().st_mtime for path in (run, *run.glob("*"))), default=0.0)


def _is_unused(run: Path) -> bool:
    try:
        with (run / LOCK).open() as file:
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
