"""What is left of runs that were killed: folders of embedded local Rays."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

_SUBJECT = "leftovers"
_GRACE_S = 10.0
"""A folder is made a moment before its keeper is started."""
_LONGEST_TEMP_DIR = 24
"""Where the temp folder has a longer path, `dlrl_local_ray.local_cluster` takes /tmp, for Ray's sockets."""


def check(request: DoctorRequest) -> Iterator[Verdict]:
    """A verdict for each folder whose keeper is gone; with `clean` it is removed, unless something still uses it."""
    folders = list(dead_folders())
    if not folders:
        searched = " or ".join(f"'{folder}'" for folder in temp_folders())
        yield ok(_SUBJECT, f"no dead local Ray in {searched}")
    for folder, users in folders:
        if users:
            pids = " ".join(str(pid) for pid in users)
            yield problem(_SUBJECT, f"the keeper of '{folder}' is gone, its Ray runs on", f"end it: kill {pids}")
        elif request.clean:
            yield _removed(folder)
        else:
            end = "was killed" if (folder / "ray").is_dir() else "did not start"
            yield warning(_SUBJECT, f"'{folder}' is of a local Ray that {end}", "run: dlrl doctor --clean")


def dead_folders() -> Iterator[tuple[Path, list[int]]]:
    """Folders of local Rays without a keeper, each with the processes whose command lines still name it."""
    commands = _command_lines()
    for folder in sorted(found for temp in temp_folders() for found in Path(temp).glob("dlrl-*")):
        if not _is_ours(folder):
            continue
        users = {pid: words for pid, words in commands.items() if any(str(folder) in word for word in words)}
        if not any("dlrl_local_ray.keeper" in words for words in users.values()):
            yield folder, sorted(users)


def temp_folders() -> list[str]:
    """Where folders of local Rays can be."""
    usual = tempfile.gettempdir()
    return [usual] if len(usual) <= _LONGEST_TEMP_DIR or usual == "/tmp" else [usual, "/tmp"]


def _is_ours(folder: Path) -> bool:
    """Made by `dlrl_local_ray.local_cluster` for this user, and not just now."""
    try:
        seen = folder.lstat()
        is_cluster = (folder / "keeper.log").is_file() and not folder.is_symlink()
    except OSError:
        return False  # it was removed in the meantime
    return is_cluster and seen.st_uid == os.getuid() and time.time() - seen.st_mtime > _GRACE_S


def _command_lines() -> dict[int, list[str]]:
    import psutil

    return {
        process.pid: process.info["cmdline"] or []
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid()
    }


def _removed(folder: Path) -> Verdict:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return problem(_SUBJECT, f"'{folder}' can't be removed: {error.strerror}", f"run: rm -r '{folder}'")
    return ok(_SUBJECT, f"'{folder}' was removed")
