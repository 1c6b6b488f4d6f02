"""Shared memory and temporary files of a process and its engine, named so that they can be removed when both are gone.

Python calls shared memory `psm_*` and semaphores `sem.mp-*`, whichever program makes them. Here a process first makes a
lock file with a name of its own, and that name becomes a part of all others. The process and the processes of its
engine hold the lock until they end, however they end: a name whose lock is free, or is gone, is of nobody, and what
bears it can be removed. The kernel keeps the lock, so that this is also true of a process in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import getpass
import multiprocessing.process
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import IO, Any

from dlrl_core.workload.process import at_end

_MEMORY = Path("/dev/shm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOCK = ".lock"
_NEW = ".new"
_FILES = "DLRL_ENGINE_FILES"
"""The lock files of the workload that owns the engine, for the engine's processes."""
_LONGEST_TEMP_DIR = 48
"""vLLM's sockets have 37 characters more than the folder they are in, and a path of a socket has at most 107."""

_held: list[IO[str]] = []
"""Open as long as this process lives: to close a file is to leave its lock."""
_by_process: dict[int, OwnedFiles] = {}


@dataclass(frozen=True)
class _Claim:
    """A name in a folder. All files there whose names contain it belong to the processes that hold its lock."""

    lock: Path

    @property
    def name(self) -> str:
        return self.lock.name.removesuffix(_LOCK)

    def files(self) -> list[Path]:
        return sorted(self.lock.parent.glob(f"*{self.name}*"))

    def remove(self) -> None:
        for path in self.files():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def hold(self) -> None:
        """Take part in holding the lock; without effect if it is gone, with all processes that held it."""
        with contextlib.suppress(FileNotFoundError):
            file = self.lock.open()
            fcntl.flock(file, fcntl.LOCK_SH)
            _held.append(file)

    @contextlib.contextmanager
    def if_free(self) -> Iterator[bool]:
        """Whether no process holds the lock; meanwhile, none can take it."""
        try:
            file = self.lock.open()
        except FileNotFoundError:
            yield True  # it is made before anything else, under its lock
            return
        except OSError:
            yield False
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True


@dataclass(frozen=True)
class OwnedFiles:
    """What a process owns on its machine."""

    claims: tuple[_Claim, ...]
    """One in shared memory, and one in the temporary folder unless its path is too long; none where locks fail."""

    @property
    def memory_name(self) -> str:
        """For a part of the name of shared memory; empty if there is no claim on any."""
        return next((one.name for one in self.claims if one.lock.parent == _MEMORY), "")

    @property
    def temp_folder(self) -> Path | None:
        """For temporary files; None if there is no claim on it."""
        found = [one for one in self.claims if one.lock.parent != _MEMORY]
        return found[0].lock.with_suffix("") if found else None

    def remove(self) -> None:
        for claim in self.claims:
            claim.remove()


def own_files() -> OwnedFiles:
    """Those of this process. Called first, it removes what is left of other processes that are gone."""
    if os.getpid() not in _by_process:
        sweep()
        owned = OwnedFiles(tuple(filter(None, map(_claimed, _roots()))))
        if owned.temp_folder is not None:
            owned.temp_folder.mkdir(mode=0o700)
        at_end.append(owned.remove)
        _by_process[os.getpid()] = owned
    return _by_process[os.getpid()]


def share_with_engine() -> None:
    """Called before an engine is started: its processes will use names and the temporary folder of this one's files.

    This process keeps its own temporary folder: it may have files there that are to outlive it.
    """
    owned = own_files()
    os.environ[_FILES] = os.pathsep.join(str(claim.lock) for claim in owned.claims)
    _name_memory(owned.memory_name)
    if (folder := owned.temp_folder) is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", _compiled())  # worth keeping
        os.environ["TMPDIR"] = str(folder)
        os.environ.setdefault("VLLM_RPC_BASE_PATH", str(folder))  # vLLM's sockets, those of this process too


def use_files_of_owner() -> None:
    """Called in each process of an engine. They are removed by the first process that sees the owner's end."""
    told = filter(None, os.environ.get(_FILES, "").split(os.pathsep))
    owned = OwnedFiles(tuple(_Claim(Path(lock)) for lock in told))
    for claim in owned.claims:
        claim.hold()
    _by_process[os.getpid()] = owned
    _name_memory(owned.memory_name)
    tempfile.tempdir = None  # a process that was forked has the one of its parent
    at_end.append(owned.remove)


def sweep() -> list[Path]:
    """Remove what processes of this user that are gone have left on this machine; returns the paths."""
    removed = []
    for claim in _claims():
        with claim.if_free() as is_free:
            if is_free:
                removed += claim.files()
                claim.remove()
    return removed


def left_files() -> list[Path]:
    """What `sweep` would remove."""
    found = []
    for claim in _claims():
        with claim.if_free() as is_free:
            found += claim.files() if is_free else []
    return found


def searched_folders() -> list[Path]:
    """Where files of dead processes are looked for."""
    return list(dict.fromkeys([_MEMORY, Path(tempfile.gettempdir())]))


def _roots() -> list[Path]:
    short = [one for one in searched_folders() if one == _MEMORY or len(str(one)) <= _LONGEST_TEMP_DIR]
    return [one for one in short if os.access(one, os.W_OK)]


def _claims() -> Iterator[_Claim]:
    """All of this user on this machine, with those that have lost their lock file."""
    pattern = re.compile(rf"{_prefix()}[0-9a-f]{{8}}")
    for root in searched_folders():
        names = {found[0] for path in _own_paths(root) if (found := pattern.search(path.name))}
        yield from (_Claim(root / f"{name}{_LOCK}") for name in sorted(names))


def _own_paths(root: Path) -> Iterator[Path]:
    for path in root.iterdir() if root.is_dir() else ():
        with contextlib.suppress(OSError):  # removed meanwhile
            if path.lstat().st_uid == os.getuid():
                yield path


@functools.cache
def _prefix() -> str:
    """Of a name. A lock is good for one boot of one machine: a temporary folder may be shared with others."""
    return f"dlrl-e{_BOOT.read_text()[:6]}-"


def _claimed(root: Path) -> _Claim | None:
    """A new name with its lock, which is held before it can be seen; None if this folder has no locks, or no room."""
    while True:
        # By two names: a sweep that saw the first one before the lock was there would take away what has the second.
        new, lock = (root / f"{_prefix()}{secrets.token_hex(4)}{suffix}" for suffix in (_NEW, _LOCK))
        try:
            file = new.open("x")
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            new.rename(lock)
        except (FileExistsError, FileNotFoundError):
            continue  # a sweep took it for one that was left
        except OSError:
            new.unlink(missing_ok=True)
            return None
        _held.append(file)
        return _Claim(lock)


def _name_memory(name: str) -> None:
    """All shared memory and semaphores of Python's multiprocessing that this process makes from now on."""
    if not name:
        return
    module: Any = shared_memory
    module._SHM_NAME_PREFIX = f"/psm_{name}_"
    module._SHM_SAFE_NAME_LENGTH = len(module._SHM_NAME_PREFIX) + 8
    process: Any = multiprocessing.process.current_process()
    process._config["semprefix"] = f"/mp-{name}"


def _compiled() -> str:
    """Where torch keeps what it compiles, if it is not told."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid_{os.getuid()}"
    return str(Path(tempfile.gettempdir()) / f"torchinductor_{user}")
