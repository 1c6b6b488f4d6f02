"""JobWriter: puts one process's commits of a job on top of each other, in the store."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dlrl_core.context.commit_line import PendingCommit
from dlrl_core.context.commit_memory import CommitMemory
from dlrl_core.context.store import Store
from dlrl_core.errors import StoreError, StoreUnavailableError


class JobWriter:
    """Knows the version that the next commit is based on. Used by one thread at a time."""

    def __init__(self, store: Store, job: str, *, version: int, commit_id: str) -> None:
        """The job as it is in the store: its version, and the id of the commit that made it."""
        self._store = store
        self._memory = CommitMemory(version=version, commit_id=commit_id)
        self._fails_until = 0.0
        self.job = job
        self.version = version
        """Of the last commit that the store confirmed."""

    @property
    def store(self) -> str:
        """The store in a sentence."""
        return self._store.label

    def fail_for(self, seconds: float) -> None:
        """Chaos: for so long, be as if the store could not be reached."""
        self._fails_until = time.monotonic() + seconds

    def write(self, commit: PendingCommit) -> Sequence[PendingCommit]:
        """Write it and return nothing; or return commits that the store lost and that must be written again before.

        Raises StoreUnavailableError if it may work later, and may have worked already; anything else is a refusal.
        """
        if time.monotonic() < self._fails_until:
            raise StoreUnavailableError(f"the store {self.store} is kept out of reach by chaos")
        try:
            version = self._committed(commit)
        except StoreUnavailableError:
            raise
        except StoreError:
            lost = self._lost()
            if not lost:
                raise
            return lost
        self._memory.keep(commit, version)
        self.version = version
        return ()

    def _committed(self, commit: PendingCommit) -> int:
        return self._store.commit(
            self.job,
            expected_version=self.version,
            puts=commit.puts,
            deletes=commit.deletes,
            events=commit.events,
            commit_id=commit.commit_id,
        )

    def _lost(self) -> Sequence[PendingCommit]:
        """What is missing, if the store came back at an earlier commit of ours; the next one is based on that."""
        stored = self._store.load(self.job)
        lost = self._memory.lost_by(stored) if stored else ()
        if stored and lost:
            self.version = stored.version
        return lost
