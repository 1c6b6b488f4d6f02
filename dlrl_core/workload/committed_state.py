"""The committed state of one workload, as its process keeps it: in memory, on durable storage, and on its way there."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrl_core.workload.captured_state import CapturedState
from dlrl_core.workload.durable_state import DurableCopies, DurableStatus
from dlrl_core.workload.state_memory import StateMemory, saved_state
from dlrl_core.workload.version_folder import Commit, Version

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@dataclass(frozen=True, kw_only=True)
class CommitOutcome:
    """What became of a commit on one rank."""

    error: str | None
    """Why this rank does not hold it; None if it does."""
    size: int
    """In bytes."""
    waited_s: float
    """How long calls of this rank waited for the copy."""
    cpu_s: float
    """Processor time of the copy."""
    durable: DurableStatus
    machine: str = field(default_factory=platform.node)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HeldCommits:
    """The commits whose state one rank can load."""

    commits: dict[str, str]
    """As JSON, by id."""
    counted: frozenset[str]
    """Ids of those that all ranks are known to have held."""
    place: str
    """Where they lie, for messages."""


class CommittedState:
    """The versions of one workload's state. Used by its host, which runs the workload's own methods."""

    def __init__(self, *, run_id: str, workload: str, durable: str | None, cluster: str = "") -> None:
        self._memory = StateMemory(run_id=run_id, workload=workload, cluster=cluster)
        self._durable = DurableCopies(Path(durable) / workload if durable else None)
        self._copy: _Copy | None = None

    @property
    def is_copying(self) -> bool:
        return self._copy is not None and not self._copy.ended.is_set()

    def begin(self, commit: Commit, keep: Collection[str], workload: Any) -> None:
        """Take the state of the workload for this commit. What is captured is copied after this returns."""
        self.wait()
        for id_ in keep:
            self.set_counted(id_)
        copy = _Copy(commit)
        if hasattr(workload, "capture_state"):
            captured: CapturedState = workload.capture_state()
            self._copy = copy
            copy.start(captured.size, lambda: self._memory.write(commit, keep, captured))
        else:
            copy.do(lambda: self._memory.write_files(commit, keep, lambda part: workload.save_state(str(part))))
            self._copy = copy

    def wait(self) -> None:
        """Return when the copy of the last commit has ended. Called before the state changes."""
        if (copy := self._copy) is not None and not copy.ended.is_set():
            copy.wait_began = min(copy.wait_began, time.perf_counter())
            copy.ended.wait()

    def outcome(self, id_: str) -> CommitOutcome:
        """Wait for the copy of this commit, and tell what became of it."""
        copy = self._copy
        if copy is None or copy.commit.id != id_:
            copy = _Copy(Commit(version=0, id=id_, step=0, progress={}))
            copy.error = "its process has begun no such commit"
            copy.ended.set()
        copy.ended.wait()
        return CommitOutcome(
            error=copy.error, size=copy.size, waited_s=copy.waited_s, cpu_s=copy.cpu_s, durable=self._durable.status()
        )

    # ---- which versions there are

    def held(self) -> HeldCommits:
        found = self._held()
        return HeldCommits(
            commits={id_: version.commit.to_json() for id_, version in found.items()},
            counted=frozenset(id_ for id_, version in found.items() if version.is_counted),
            place=self._memory.place(),
        )

    def _held(self) -> dict[str, Version]:
        return {**self._durable.held(), **self._memory.held()}

    def set_counted(self, id_: str) -> None:
        """All ranks hold this commit."""
        version = self._memory.held().get(id_)
        if version is not None and not version.is_counted:
            with contextlib.suppress(OSError):  # a disk that is read-only by now, or the run's end
                version.set_counted()

    def damage(self, id_: str) -> str | None:
        """Why the state of this commit can't be loaded, in one sentence; None if it can. A damaged one is set aside."""
        version = self._held().get(id_)
        if version is None:
            return f"there is no whole version of it in '{self._memory.place()}'"
        damage = version.damage()
        if damage is not None:
            version.set_aside()
        return damage

    def load(self, id_: str, workload: Any) -> None:
        """Bring the workload back to the state of this commit."""
        version = self._held()[id_]
        with self._memory.pinned(version):
            saved = saved_state(version.folder)
            if saved is not None:
                workload.restore_state(saved)
            else:
                workload.load_state(str(version.folder))

    # ---- durable storage

    def start_durable(self, id_: str, on_all: str | None) -> None:
        """Copy this commit to durable storage in the background; `on_all` is the newest that every rank has there."""
        version = self._memory.held().get(id_)
        if version is None:
            self._durable.missed(f"there is no whole version of it in '{self._memory.place()}'")
            return
        self._memory.pin(id_)
        self._durable.start(version, lambda: self._memory.unpin(id_))
        threading.Thread(target=self._durable.prune, args=(on_all,), name="dlrl-prune", daemon=True).start()

    def make_durable(self, id_: str) -> None:
        """Copy this commit to durable storage; returns when it is there. Raises DlrlError."""
        version = self._memory.held()[id_]
        with self._memory.pinned(version):
            self._durable.copy(version)

    def durable_status(self) -> DurableStatus:
        return self._durable.status()

    def abandon_durable(self) -> None:
        self._durable.abandon()


class _Copy:
    """One commit on its way to memory."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.size = 0
        self.error: str | None = None
        self.wait_began = math.inf
        """When the first call began to wait for it."""
        self.ended_at = math.inf
        self.cpu_s = 0.0
        self.ended = threading.Event()

    def do(self, write: Callable[[], int]) -> None:
        """Write now. What the workload's own method raises is an error of that call; a full disk is not."""
        try:
            self.size = write()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.error = self._not_kept(error)
        self._end()

    def start(self, size: int, write: Callable[[], float]) -> None:
        """Write in a thread."""
        self.size = size
        threading.Thread(target=self._run, args=(write,), name="dlrl-commit", daemon=True).start()

    def _run(self, write: Callable[[], float]) -> None:
        try:
            self.cpu_s = write()
        except OSError as error:
            self.error = self._not_kept(error)
        except Exception as error:  # noqa: BLE001 - a buffer of an adapter; the trainer gets it with the outcome
            self.error = f"commit {self.commit.version} could not be copied: {type(error).__name__}: {error}"
        finally:
            self._end()

    @property
    def waited_s(self) -> float:
        return max(0.0, self.ended_at - self.wait_began) if self.wait_began < math.inf else 0.0

    def _end(self) -> None:
        self.ended_at = time.perf_counter()
        self.ended.set()

    def _not_kept(self, error: OSError) -> str:
        return f"commit {self.commit.version} could not be kept in memory: {error}"
