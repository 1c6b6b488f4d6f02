"""Copies of a rank's versions on durable storage: made one at a time in a thread, and reported.

Durable storage may be slow, full, read-only or hung. None of that stops a commit: the copy fails or is given up, what
it had written is removed, and the reason is part of the status until a copy succeeds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path

from dlrl_core.errors import DlrlError
from dlrl_core.workload.state_keeper import DurableStatus
from dlrl_state.version_folder import Version, discard, new_part, publish, published, unused_parts

_KEPT = 2
_PIECE = 16 * 2**20
_LIST_S = 30.0
_MANIFEST_ROOM = 2**20


class DurableCopies:
    """The versions of one workload below a folder that outlives its node."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, int] | None = None
        """Ids and versions, listed once: storage may be slow, and a commit should not wait for it."""
        self._job: _CopyJob | None = None
        self._given_up: _CopyJob | None = None
        self._error: str | None = None
        self._guard = threading.Lock()

    def held(self) -> dict[str, Version]:
        """All whole versions; none, with an error in the status, if the storage does not answer in time."""
        if self._folder is None:
            return {}
        lister = ThreadPoolExecutor(1, thread_name_prefix="dlrl-durable-list")
        try:
            found = lister.submit(published, self._folder).result(_LIST_S)
        except (OSError, TimeoutError) as error:
            self._error = f"'{self._folder}' can't be listed: {error or f'no answer for {_LIST_S:g} s'}"
            self._known = self._known or {}
            return {}
        finally:
            lister.shutdown(wait=False)
        self._known = {id_: version.commit.version for id_, version in found.items()}
        return found

    def status(self) -> DurableStatus:
        if self._folder is None:
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
            if self._folder is None or self._job is not None or is_stuck:
                on_end()
                return
            job = self._job = _CopyJob(version, on_end)
        threading.Thread(target=self._run, args=(job,), name="dlrl-durable", daemon=True).start()

    def missed(self, reason: str) -> None:
        """A copy that was asked for could not begin."""
        self._error = reason

    def copy(self, version: Version) -> None:
        """Copy a version now; returns when it is synced. Raises DlrlError."""
        if self._folder is None:
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

    def abandon(self) -> None:
        """Give up the copy that is under way: it stops at its next byte, and is never published."""
        with self._guard:
            if (job := self._job) is not None:
                job.is_abandoned = True
                self._job, self._given_up = None, job
                job.on_end()  # its memory may be written over: what is copied of that is never published
                still_s = time.monotonic() - job.moved_at
                self._error = f"a copy to '{self._folder}' stood still for {still_s:.0f} s and was given up"

    def prune(self, on_all: str | None) -> None:
        """Remove old versions but the newest two and `on_all`, the newest that every rank is known to have."""
        if self._folder is None or on_all is None:
            return
        found = published(self._folder)
        newest = sorted(found, key=lambda id_: found[id_].commit.version)[-_KEPT:]
        for id_ in found.keys() - {*newest, on_all}:
            discard(found[id_].folder)
            self._known = {one: version for one, version in (self._known or {}).items() if one != id_}

    def _run(self, job: _CopyJob) -> None:
        assert self._folder is not None
        try:
            job.copy_to(self._folder)
            if not job.is_abandoned:
                self._known = {**(self._known or {}), job.version.commit.id: job.version.commit.version}
                self._error = None
        except OSError as error:
            if not job.is_abandoned:
                what = f"commit {job.version.commit.version} was not copied to '{self._folder}'"
                self._error = f"{what}: {error.strerror or error}"
        finally:
            job.ended.set()
            job.on_end()
            with self._guard:
                if self._job is job:
                    self._job = None


class _CopyJob:
    def __init__(self, version: Version, on_end: Callable[[], None] = lambda: None) -> None:
        self.version = version
        self.on_end = on_end
        self.moved_at = time.monotonic()
        self.is_abandoned = False
        self.ended = threading.Event()

    def copy_to(self, root: Path) -> None:
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        for part in unused_parts(root):
            shutil.rmtree(part, ignore_errors=True)
        free = shutil.disk_usage(root).free
        if free < self.version.size + _MANIFEST_ROOM:
            raise OSError(f"it needs {self.version.size / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free there")
        part = new_part(root, self.version.commit)
        try:
            for file in sorted({piece.file for piece in self.version.pieces}):
                self._copy_file(self.version.folder / file, part / file)
            if self.version.damage_of(part, self._moved) is not None:
                raise OSError("it was changed while it was copied")
            publish(part, self.version.commit, self.version.pieces, is_synced=True, check=self._check)
        except BaseException:
            with contextlib.suppress(OSError):
                shutil.rmtree(part)
            raise

    def _copy_file(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as read, target.open("wb") as write:
            while data := read.read(_PIECE):
                self._check()
                write.write(data)
                write.flush()
                os.fdatasync(write.fileno())  # piece by piece: storage that is slow is seen to move
                self._moved()

    def _moved(self) -> None:
        self.moved_at = time.monotonic()

    def _check(self) -> None:
        if self.is_abandoned:
            raise OSError("it was given up")
