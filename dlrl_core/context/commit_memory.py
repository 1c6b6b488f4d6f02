"""CommitMemory: the last commits that a store confirmed, in case it loses them.

A server that crashes may come back without the last second or two (Redis, unless it is told to sync each commit),
and so may the replica that takes its place. Nobody else wrote then: the lost commits can be written again.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from dlrl_core.context.commit_line import PendingCommit
from dlrl_core.context.store import StoredJob

_REMEMBERED_S = 30.0
_MOST_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class _Confirmed:
    version: int
    commit: PendingCommit
    at: float


class CommitMemory:
    """What this process wrote in the last half minute before its last commit."""

    def __init__(self, *, version: int, commit_id: str) -> None:
        self._base = (version, commit_id)
        self._confirmed: deque[_Confirmed] = deque()
        self._characters = 0

    def keep(self, commit: PendingCommit, version: int) -> None:
        now = time.monotonic()
        self._confirmed.append(_Confirmed(version=version, commit=commit, at=now))
        self._characters += commit.characters
        while self._confirmed[0].at < now - _REMEMBERED_S or self._characters > _MOST_CHARACTERS:
            oldest = self._confirmed.popleft()
            self._characters -= oldest.commit.characters
            self._base = (oldest.version, oldest.commit.commit_id)
            if not self._confirmed:
                return

    def lost_by(self, stored: StoredJob) -> list[PendingCommit]:
        """The commits that the store forgot, oldest first; none if its last one is not known to be ours or our base.

        Memory then goes on from there.
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
