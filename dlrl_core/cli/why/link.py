"""Link: one thing that happened to a job, and what was done about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Loss(enum.StrEnum):
    """What a restart made the trainer do again."""

    NOTHING = "nothing"
    UNCOMMITTED = "uncommitted"
    """The steps after the last commit."""
    NOT_DURABLE = "not durable"
    """The steps after the last durable commit: what was in the memory of a node went with it."""
    EVERYTHING = "everything"
    """Nothing was committed, so it began again."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What was decided after a finding, and what came of it."""

    at: float
    scope: str
    """Of FailoverScope; a text, because the journal may be of a newer dlrl."""
    reason: str
    restarts: tuple[str, ...]
    seconds: float | None
    """Until all of them were ready again; None if nothing tells."""
    loss: Loss


@dataclass(frozen=True, kw_only=True)
class Link:
    """One thing that happened."""

    at: float
    kind: str
    """Of the journal event."""
    subject: str
    message: str
    finding: str | None = None
    """Of a finding: process_died, user_error or call_lost."""
    trigger: str | None = None
    """Of a finding: the chaos, or the hang, that the journal has just before."""
    response: Response | None = None
    """Of a finding."""
    stacks: str | None = None
    """Of a call that hung."""

    @property
    def cause(self) -> str:
        """In one line, with who was behind it."""
        line = self.message.partition("\n")[0]
        return f"{line} ({self.trigger})" if self.trigger else line
