"""Which commits are copied to durable storage. Pure.

All ranks copy the same versions, so that there is one that all of them have. A rank copies one at a time: while one
still does, the turn waits for a later commit; and if a copy failed, the next commit is tried instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlrl_core.workload.state_folder import Commit, DurableCommits


class DurableTurns:
    """What the trainer knows of the durable storage of all ranks, from their answers to the last commit."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.forget()

    def forget(self) -> None:
        """Training went back: what is where will be heard with the next commit."""
        self.on_all: int | None = None
        """The newest version that all ranks have."""
        self._asked: tuple[int, str] | None = None
        self._is_due = False
        self._is_copying = False

    def takes(self, commit: Commit) -> bool:
        """Whether this one is to be copied."""
        self._is_due = self._is_due or commit.version % self._every == 0
        is_taken = self._is_due and not self._is_copying
        if is_taken:
            self._asked, self._is_due = (commit.version, commit.id), False
        return is_taken

    def heard(self, answers: Sequence[DurableCommits]) -> None:
        """What the ranks say after a commit."""
        if not answers:
            return
        common = frozenset.intersection(*(answer.commits for answer in answers))
        self.on_all = max((version for version, _ in common), default=None)
        self._is_copying = any(answer.is_copying for answer in answers)
        if self._asked is not None and not self._is_copying:
            self._is_due = self._is_due or self._asked not in common
            self._asked = None
