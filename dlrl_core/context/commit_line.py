"""CommitLine: commits in the order in which they were made, on their way to the store."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlrl_core.context.store import new_commit_id

_PROGRESS = frozenset({"progress"})


@dataclass(frozen=True, kw_only=True, eq=False)
class PendingCommit:
    """What `Store.commit` gets, but for the version, which is known only when those before it are written."""

    puts: Mapping[str, str] = field(default_factory=dict)
    deletes: Sequence[str] = ()
    events: Sequence[str] = ()
    changes: int = 1
    """How many changes of the job it stands for."""
    commit_id: str = field(default_factory=new_commit_id)
    """By which the store knows it again, if it is asked twice."""
    made_at: float = field(default_factory=time.monotonic)

    @property
    def characters(self) -> int:
        return sum(map(len, (*self.puts, *self.puts.values(), *self.deletes, *self.events)))

    @property
    def is_progress(self) -> bool:
        """Whether it says no more than how far training came, so that the next of its kind outdates it."""
        return self.puts.keys() == _PROGRESS and not self.deletes and not self.events


class CommitLine:
    """First in, first out. Only progress is ever left out, where the next commit in line has newer progress."""

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
        if self._can_outdate_last(commit):
            last = self._commits.pop()
            self.characters -= last.characters
            commit = PendingCommit(puts=commit.puts, changes=last.changes + commit.changes, made_at=last.made_at)
        self._commits.append(commit)
        self.characters += commit.characters

    @property
    def first(self) -> PendingCommit:
        return self._commits[0]

    def try_first(self) -> PendingCommit:
        """The next one to be written. The store may know it from now on, so it stays as it is."""
        self._is_first_tried = True
        return self._commits[0]

    def drop_first(self) -> None:
        self.characters -= self._commits.popleft().characters
        self._is_first_tried = False

    def put_back(self, commits: Sequence[PendingCommit]) -> None:
        """Commits that were written, and have to be written once more before all the others."""
        self._commits.extendleft(reversed(commits))
        self.characters += sum(commit.characters for commit in commits)
        self._is_first_tried = True

    def _can_outdate_last(self, commit: PendingCommit) -> bool:
        if not self._commits or not commit.is_progress or not self._commits[-1].is_progress:
            return False
        return len(self._commits) > 1 or not self._is_first_tried
