"""Copies of a rank's versions on durable storage: made one at a time in a thread, and reported.

Durable storage may be slow, full, read-only or hung. None of that stops a commit: the copy fails or is given up, what
it had written is removed, and the reason is part of the status until a copy succeeds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dlrl_core.errors import DlrlError
from dlrl_core.workload.state_keeper import Commit, DurableStatus
from dlrl_state.durable_storage import CopyProgress, DurableStorage, within
from dlrl_state.local_storage import LocalStorage
from dlrl_state.url_storage import UrlStorage, is_url
from dlrl_state.version_folder import Version

if TYPE_CHECKING:
    from dlrl_state.state_memory import StateMemory

_KEPT = 2
_LIST_S = 30.0


def storage_at(place: str) -> DurableStorage:
    """The storage at a path or a URL."""
    return UrlStorage(place) if is_url(place) else LocalStorage(Path(place))


class DurableCopies:
    """The versions of one workload on storage that outlives its node."""

    def __init__(self, storage: DurableStorage | None) -> None:
        self._storage = storage
        self._known: dict[str, int] | None = None
        """Ids and versions, listed once: storage may be slow, and a commit should not wait for it."""
        self._job: _CopyJob | None = None
        self._given_up: _CopyJob | None = None
        self._error: str | None = None
        self._guard = threading.Lock()
        self._pruning = threading.Lock()
        self._barred: set[str] = set()
        """Ids of versions that could not be loaded: a search for one that can must not come upon them again."""

    def held(self) -> dict[str, Commit]:
        """The commits of all whole versions; none, with an error in the status, if there is no answer in time."""
        if self._storage is None:
            return {}
        try:
            found = within(_LIST_S, self._storage.held)
        except OSError as error:
            self._error = f"'{self._storage.place}' can't be listed: {error.strerror or error}"
            self._known = self._known or {}
            return {}
        self._known = {id_: commit.version for id_, commit in found.items()}
        return {id_: commit for id_, commit in found.items() if id_ not in self._barred}

    def bring(self, id_: str, memory: StateMemory) -> Version | None:
        """The version as files of this node; None if there is no whole one. Raises OSError."""
        commit = self.held().get(id_)
        return None if self._storage is None or commit is None else self._storage.bring(commit, memory)

    def bar(self, id_: str) -> None:
        """Do not name this version as held until a copy was made: it could not be loaded."""
        self._barred.add(id_)

    def status(self) -> DurableStatus:
        if self._storage is None:
            return DurableStatus()
        if self._known is None:
            self.held()
        job = self._job
        return DurableStatus(
            commits=frozenset((version, id_) for id_, version in (self._known or {}).items()),
            copying=job.version.commit.id if job else None,
            still_s=time.monotonic() - job.moved_at if job else 0.0,
            error=self._error,
        )

    def start(self, version: Version, on_end: Callable[[], None]) -> None:
        """Copy a version in the background, unless another copy is under way; `on_end` is called in any case."""
        with self._guard:
            is_stuck = self._given_up is not None and not self._given_up.ended.is_set()
            if self._storage is None or self._job is not None or is_stuck:
                on_end()
                return
            job = self._job = _CopyJob(version, on_end)
        threading.Thread(target=self._run, args=(job,), name="dlrl-durable", daemon=True).start()

    def missed(self, reason: str) -> None:
        """A copy that was asked for could not begin."""
        self._error = reason

    def copy(self, version: Version) -> None:
        """Copy a version now; returns when it is synced. Raises DlrlError."""
        if self._storage is None:
            return
        while True:
            with self._guard:
                job = self._job
                if job is None:
                    job = self._job = _CopyJob(version)
                    break
            job.ended.wait()
        self._run(job)
        if version.commit.id not in (self._known or {}):
            raise DlrlError(self._error or f"the copy of commit {version.commit.version} was given up")

    @property
    def _place(self) -> str:
        return self._storage.place if self._storage else ""

    def abandon(self) -> None:
        """Give up the copy that is under way: it stops at its next byte, and is never published."""
        with self._guard:
            if (job := self._job) is not None:
                job.is_abandoned = True
                self._job, self._given_up = None, job
                job.on_end()  # its memory may be written over: what is copied of that is never published
                still_s = time.monotonic() - job.moved_at
                self._error = f"a copy to '{self._place}' stood still for {still_s:.0f} s and was given up"

    def prune(self, on_all: str | None) -> None:
        """Remove old versions but the newest two and `on_all`, the newest that every rank is known to have."""
        if self._storage is None or on_all is None or not self._pruning.acquire(blocking=False):
            return
        try:
            self._prune(self._storage, on_all)
        except OSError:
            pass  # a copy tells what is wrong with the storage, and the next one prunes again
        finally:
            self._pruning.release()

    def _prune(self, storage: DurableStorage, on_all: str) -> None:
        found = storage.held()
        newest = sorted(found, key=lambda id_: found[id_].version)[-_KEPT:]
        for id_ in found.keys() - {*newest, on_all}:
            storage.remove(found[id_])
            self._known = {one: version for one, version in (self._known or {}).items() if one != id_}
        if on_all in found:
            storage.sweep(found[on_all].version)

    def _run(self, job: _CopyJob) -> None:
        assert self._storage is not None
        try:
            self._storage.write(job.version, job)
            if not job.is_abandoned:
                self._known = {**(self._known or {}), job.version.commit.id: job.version.commit.version}
                self._error = None
                self._barred.clear()
        except OSError as error:
            if not job.is_abandoned:
                what = f"commit {job.version.commit.version} was not copied to '{self._place}'"
                self._error = f"{what}: {error.strerror or error}"
        finally:
            job.ended.set()
            job.on_end()
            with self._guard:
                if self._job is job:
                    self._job = None


class _CopyJob(CopyProgress):
    def __init__(self, version: Version, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.version = version
        self.on_end = on_end
        self.ended = threading.Event()
