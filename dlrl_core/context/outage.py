"""A store that does not answer: how long, how it is told, and how much may wait for it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dlrl_core.context.commit_line import PendingCommit
from dlrl_core.context.journal import JournalEvent

_WORTH_A_WORD_S = 5.0


@dataclass(frozen=True, kw_only=True)
class OutageLimits:
    """How a job lives through an outage of its store."""

    patience_s: float = 1.0
    """How long a change waits for the store before it goes on without; only the first one of an outage does."""
    durable_s: float = 15.0
    """How long a change waits that must be in the store."""
    first_pause_s: float = 0.1
    """Before the store is asked again; doubled each time."""
    longest_pause_s: float = 2.0
    most_changes: int = 10_000
    """How many changes may wait, progress in a row counted once. The next one is refused."""
    most_characters: int = 64_000_000
    """How much text may wait."""


@dataclass(kw_only=True)
class Outage:
    """From the first commit that found no store to the moment when all that waited is written."""

    store: str
    """The store's label."""
    start: float
    """When that commit was made, by the monotonic clock."""
    since: float
    """The same in epoch seconds."""
    cause: str | None = None
    """What the store's client last said; None while it just takes long."""
    changes: int = 0
    """How many were written after they had waited."""

    @classmethod
    def beginning_with(cls, commit: PendingCommit, store: str) -> Outage:
        return cls(store=store, start=commit.made_at, since=time.time() - (time.monotonic() - commit.made_at))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def sentence(self, waiting: int) -> str:
        """For a status: how long, and how many changes wait."""
        silence = f"the store {self.store} has not answered for {self.seconds:.0f} s"
        return f"{silence}; {waiting} {'change waits' if waiting == 1 else 'changes wait'}"

    def began(self) -> PendingCommit:
        """The journal's sentence that it began, written with all the rest when it is over."""
        message = f"the store {self.store} can't be reached; the job goes on, its changes wait in memory"
        return _event("store_lost", message, self.since, cause=self.cause)

    def ended(self) -> PendingCommit | None:
        """The journal's sentence that it is over; None if the store was just slow for a moment."""
        if self.cause is None and self.seconds < _WORTH_A_WORD_S:
            return None
        written = f"{self.changes} {'change was' if self.changes == 1 else 'changes were'} written"
        message = f"the store {self.store} answers again after {self.seconds:.1f} s; {written}"
        return _event("store_back", message, time.time(), seconds=round(self.seconds, 3), changes=self.changes)


def rewound(store: str, commits: int) -> PendingCommit:
    """The journal's sentence that the store had lost what it had confirmed."""
    what = f"{commits} {'commit' if commits == 1 else 'commits'}"
    message = f"the store {store} came back without the last {what} it had confirmed; written again"
    return _event("store_rewound", message, time.time(), commits=commits)


def _event(kind: str, message: str, at: float, **data: object) -> PendingCommit:
    event = JournalEvent.model_validate({"kind": kind, "message": message, "subject": "job", "at": at, "data": data})
    return PendingCommit(events=[event.to_text()], changes=0)
