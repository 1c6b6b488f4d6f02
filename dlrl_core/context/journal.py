"""JournalEvent: one numbered sentence about something that happened to a job."""

from __future__ import annotations

import json
import time
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dlrl_core.context.redaction import RedactedData, RedactedText
from dlrl_core.context.store import StoredEvent
from dlrl_core.errors import SchemaError


class JournalEvent(BaseModel):
    """One thing that happened. Message and data are redacted when the event is made."""

    # Events are only shown, never acted on: unknown fields of a newer dlrl are ignored.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    seq: int = 0
    """Its number in the journal, given by the store; 0 until it is committed."""
    at: float = Field(default_factory=time.time)
    kind: str
    """A word to filter by, such as 'workload_died'."""
    message: RedactedText
    subject: str | None = None
    """The name of a workload, or 'trainer', 'master' or 'job'."""
    data: RedactedData = {}

    def to_text(self) -> str:
        """The text that the store keeps, without the number."""
        return json.dumps(self.model_dump(mode="json", exclude={"seq"}))

    @classmethod
    def of(cls, stored: StoredEvent, *, job: str) -> Self:
        """Raises SchemaError if the text is not an event."""
        try:
            return cls.model_validate({**json.loads(stored.text), "seq": stored.seq})
        except (ValueError, TypeError, ValidationError) as error:
            raise SchemaError(f"event {stored.seq} in the journal of job '{job}' can't be read") from error
