"""Commits on their way to the store: those that wait, those that the store confirmed, and how one is written.

A server that crashes may come back without the last second or two (Redis, unless it syncs each commit), and so may
the replica that replaces it. If no other process wrote meanwhile, the lost commits can be written again:
`JobWriter` remembers them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlrl_core.context.store import Store, StoredJob, new_commit_id
from dlrl_core.errors import StoreError, StoreUnavailableError

_PROGRESS = frozenset({"progress"})
_REMEMBERED_S = 30.0
_MOST_REMEMBERED_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class PendingCommit:
    """The arguments of `Store.commit` without the version, which is known when the commits before it are written."""

    puts: Mapping[str, str] = field(default_factory=dict)
    deletes: Sequence[str] = ()
    events: Sequence[str] = ()
    changes: int = 1
    """How many changes of the job it stands for."""
    commit_id: str = field(default_factory=new_commit_id)
    """By which the store recognises a commit that is sent twice."""
    made_at: float = field(default_factory=time.monotonic)

    @property
    def characters(self) -> int:
        return sum(map(len, (*self.puts, *self.puts.values(), *self.deletes, *self.events)))

    @property
    def is_progress(self) -> bool:
        """Whether it holds nothing but training progress, so that the next commit of this kind replaces it."""
        return self.puts.keys() == _PROGRESS and not self.deletes and not self.events


class CommitLine:
    """A FIFO queue of commits. A progress commit is left out if the next commit in line is newer progress."""

    def __init__(self) -> None:
        self._commits: deque[PendingCommit] = deque()
        self._is_first_tried = False
        self.characters = 0

    def __len__(self) -> int:
        return len(self._commits)

    def __contains__(self, commit: PendingCommit) -> bool:
        return commit in self._commits

    @property
    def changes(self) -> int:
        return sum(commit.changes for commit in self._commits)

    def add(self, commit: PendingCommit) -> None:
        if self._can_replace_last(commit):
            last = self._commits.pop()
            self.characters -= last.characters
            commit = PendingCommit(puts=commit.puts, changes=last.changes + commit.changes, made_at=last.made_at)
        self._commits.append(commit)
        self.characters += commit.characters

    @property
    def first(self) -> PendingCommit:
        return self._commits[0]

    def try_first(self) -> PendingCommit:
        """The next commit to write. The store may have it from now on, so it is not replaced any more."""
        self._is_first_tried = True
        return self._commits[0]

    def drop_first(self) -> None:
        self.characters -= self._commits.popleft().characters
        self._is_first_tried = False

    def put_back(self, commits: Sequence[PendingCommit]) -> None:
        """Put commits that must be written again before all others."""
        self._commits.extendleft(reversed(commits))
        self.characters += sum(commit.characters for commit in commits)
        self._is_first_tried = True

    def _can_replace_last(self, commit: PendingCommit) -> bool:
        if not self._commits or not commit.is_progress or not self._commits[-1].is_progress:
            return False
        return len(self._commits) > 1 or not self._is_first_tried


@dataclass(frozen=True, kw_only=True, slots=True)
class _Confirmed:
    version: int
    commit: PendingCommit
    at: float


class _CommitMemory:
    """The commits that the store confirmed in the last half minute, up to a size."""

    def __init__(self, *, version: int, commit_id: str) -> None:
        self._base = (version, commit_id)
        self._confirmed: deque[_Confirmed] = deque()
        self._characters = 0

    def keep(self, commit: PendingCommit, version: int) -> None:
        now = time.monotonic()
        self._confirmed.append(_Confirmed(version=version, commit=commit, at=now))
        self._characters += commit.characters
        while self._confirmed[0].at < now - _REMEMBERED_S or self._characters > _MOST_REMEMBERED_CHARACTERS:
            oldest = self._confirmed.popleft()
            self._characters -= oldest.commit.characters
            self._base = (oldest.version, oldest.commit.commit_id)
            if not self._confirmed:
                return

    def take_lost(self, stored: StoredJob) -> list[PendingCommit]:
        """Remove and return the commits that the store lost, oldest first.

        None are lost unless the store's last commit is one that is remembered here, by version and id.
        """
        head = (stored.version, stored.commit_id)
        known = [self._base, *((one.version, one.commit.commit_id) for one in self._confirmed)]
        if not stored.commit_id or head not in known:
            return []
        kept = known.index(head)
        lost = [one.commit for one in list(self._confirmed)[kept:]]
        for _ in lost:
            self._characters -= self._confirmed.pop().commit.characters
        return lost


class JobWriter:
    """Writes the commits of one job by one process, each based on the one before. Used by one thread at a time."""

    def __init__(self, store: Store, job: str, *, version: int, commit_id: str) -> None:
        """`version` and `commit_id` are those of the job's last commit in the store."""
        self._store = store
        self._memory = _CommitMemory(version=version, commit_id=commit_id)
        self._fails_until = 0.0
        self.job = job
        self.store_label = store.label
        self.version = version
        """Of the last commit that the store confirmed."""

    def fail_for(self, seconds: float) -> None:
        """Chaos: behave for so long as if the store could not be reached."""
        self._fails_until = time.monotonic() + seconds

    def write(self, commit: PendingCommit) -> Sequence[PendingCommit]:
        """Write the commit and return nothing; or return commits that the store lost, to be written again before it.

        Raises StoreUnavailableError if the commit may succeed later; it may also have been written already. Any other
        error is a refusal.
        """
        if time.monotonic() < self._fails_until:
            raise StoreUnavailableError(f"the store {self.store_label} is kept out of reach by chaos")
        try:
            version = self._store.commit(
                self.job,
                expected_version=self.version,
                puts=commit.puts,
                deletes=commit.deletes,
                events=commit.events,
                commit_id=commit.commit_id,
            )
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

    def _lost(self) -> Sequence[PendingCommit]:
        """The lost commits, if the store is at an earlier commit of ours; the next commit is then based on that."""
        stored = self._store.load(self.job)
        lost = self._memory.take_lost(stored) if stored else ()
        if stored and lost:
            self.version = stored.version
        return lost
