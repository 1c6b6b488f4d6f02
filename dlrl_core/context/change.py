"""Change: what one `with context.change()` block collects, before it is written; and the events of the journal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dlrl_core.context.job_state import JobState, check_transition
from dlrl_core.context.records import (
    Incident,
    JobRecord,
    WorkloadRecord,
    job_documents,
    record_text,
    with_incident,
    workload_key,
)
from dlrl_core.context.redaction import RedactedData, RedactedText
from dlrl_core.context.store import StoredEvent
from dlrl_core.errors import ContextError, SchemaError
from dlrl_core.spec.frozen import validation_problems


class JournalEvent(BaseModel):
    """One thing that happened. Message and data are redacted when the event is made."""

    # Events are only shown, never acted on: unknown fields of a newer dlrl are ignored.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    seq: int = 0
    """Its number in the journal, given by the store; 0 until it is committed."""
    at: float = Field(default_factory=time.time)
    kind: str
    """A word to filter by, such as 'incident'."""
    message: RedactedText
    subject: str | None = None
    """The name of a workload, or 'trainer', 'master' or 'job'."""
    data: RedactedData = {}

    def shown(self) -> dict[str, Any]:
        """Its plain values, without the number."""
        return self.model_dump(mode="json", exclude={"seq"})

    def to_text(self) -> str:
        """The text that the store keeps, without the number."""
        return json.dumps(self.shown())

    @classmethod
    def of(cls, stored: StoredEvent, *, job: str) -> Self:
        """Raises SchemaError if the text is not an event."""
        try:
            return cls.model_validate({**json.loads(stored.text), "seq": stored.seq})
        except (ValueError, TypeError, ValidationError) as error:
            raise SchemaError(f"event {stored.seq} in the journal of job '{job}' can't be read") from error


M = TypeVar("M", bound=BaseModel)

_FIXED: dict[type[BaseModel], frozenset[str]] = {
    JobRecord: frozenset({"record_schema", "name", "run_id", "submitted_at", "journal_start"}),
    WorkloadRecord: frozenset({"record_schema", "name", "role", "rank"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What a change comes to. None stands for a workload or a document that is no more."""

    record: JobRecord
    workloads: Mapping[str, WorkloadRecord | None]
    """Only those that were touched."""
    documents: Mapping[str, str | None]
    """Only those that differ."""
    events: Sequence[JournalEvent]


class Change:
    """The next state of a job, as far as it differs. Made by `JobContext.change`, used in its block only."""

    def __init__(self, record: JobRecord, workloads: Mapping[str, WorkloadRecord]) -> None:
        self._old_record = record
        self._old_workloads = workloads
        self._record = record
        self._workloads: dict[str, WorkloadRecord | None] = {}
        self._events: list[JournalEvent] = []
        self._is_over = False

    @property
    def record(self) -> JobRecord:
        """The job as it will be."""
        return self._record

    def job(self, **updates: Any) -> JobRecord:
        """Set fields of the job's record and return it as it will be.

        A new `state` must be an allowed transition. Unless they are given, it also sets `state_since`, and
        `ended_at` if it is final.
        """
        self._check_usable()
        if "state" in updates:
            updates = {**self._state_updates(updates["state"]), **updates}
        self._record = _updated(self._record, f"job '{self._record.name}'", updates)
        return self._record

    def trainer(self, **updates: Any) -> None:
        """Set fields of the trainer's record."""
        trainer = _updated(self._record.trainer, f"trainer of job '{self._record.name}'", updates)
        self.job(trainer=trainer)

    def progress(self, **updates: Any) -> None:
        """Set fields of the progress; `updated_at` becomes now unless it is given."""
        updates = {"updated_at": time.time(), **updates}
        progress = _updated(self._record.progress, f"progress of job '{self._record.name}'", updates)
        self.job(progress=progress)

    def workload(self, name: str, **updates: Any) -> WorkloadRecord:
        """Set fields of one workload and return it as it will be; a new `state` also sets `since`."""
        self._check_usable()
        old = self._workload_or_none(name)
        if old is None:
            raise ContextError(f"job '{self._record.name}' has no workload '{name}'")
        if updates.get("state", old.state) != old.state:
            updates = {"since": time.time(), **updates}
        new = _updated(old, f"workload '{name}'", updates)
        self._workloads[name] = new
        return new

    def add_workload(self, record: WorkloadRecord) -> None:
        """Add a workload of a new name."""
        self._check_usable()
        if self._workload_or_none(record.name) is not None:
            raise ContextError(f"job '{self._record.name}' has a workload '{record.name}' already")
        self._workloads[record.name] = record

    def remove_workload(self, name: str) -> None:
        """Forget a workload that a new plan no longer has."""
        self._check_usable()
        if self._workload_or_none(name) is None:
            raise ContextError(f"job '{self._record.name}' has no workload '{name}'")
        self._workloads[name] = None

    def incident(self, incident: Incident) -> None:
        """Add an incident, or replace the one of its number, and tell the journal."""
        known = {one.number: one for one in self._record.incidents}
        old = known.get(incident.number)
        if old is None:
            self.job(incidents=with_incident(self._record.incidents, incident))
            decided = f"scope '{incident.scope}': {incident.explanation}"
            data = {"incident": incident.model_dump(mode="json", exclude={"record_schema"})}
            self.event("incident", f"{incident.message}; {decided}", subject=incident.subject, **data)
            return
        self.job(incidents=tuple({**known, incident.number: incident}.values()))
        if old.ready_at is None and incident.seconds is not None:
            message = f"all processes are ready again, {incident.seconds:.1f} s after incident {incident.number}"
            self.event("recovered", message, subject=incident.subject, number=incident.number)

    def event(self, kind: str, message: str, subject: str | None = None, **data: Any) -> None:
        """Add a sentence to the journal, redacted. `data` may hold anything that has a text."""
        self._check_usable()
        self._events.append(JournalEvent(kind=kind, message=message, subject=subject, data=data))

    def close(self) -> None:
        """End its use; called by JobContext when the block is left."""
        self._is_over = True

    def collected(self) -> Collected:
        """All of it, for JobContext to write."""
        documents = job_documents(self._record, old=self._old_record)
        for name, record in self._workloads.items():
            if record != self._old_workloads.get(name):
                documents[workload_key(name)] = None if record is None else record_text(record)
        return Collected(
            record=self._record,
            workloads=self._workloads,
            documents=documents,
            events=tuple(self._events),
        )

    def _workload_or_none(self, name: str) -> WorkloadRecord | None:
        return self._workloads[name] if name in self._workloads else self._old_workloads.get(name)

    def _state_updates(self, wanted: Any) -> dict[str, Any]:
        old = self._record.state
        try:
            new = JobState(wanted)
        except ValueError:
            known = ", ".join(JobState)
            raise ContextError(f"'{wanted}' is no state of a job; it must be one of {known}") from None
        check_transition(old, new)
        if new == old:
            return {}
        now = time.time()
        return {"state_since": now, "ended_at": now} if new.is_final else {"state_since": now}

    def _check_usable(self) -> None:
        if self._is_over:
            raise ContextError(f"this change of job '{self._record.name}' is over; open another one")


def _updated(record: M, what: str, updates: Mapping[str, Any]) -> M:
    """The record with fields set and validated. Raises ContextError, which names what was to be changed."""
    fixed = _FIXED.get(type(record), frozenset({"record_schema"})).intersection(updates)
    if fixed:
        names = ", ".join(f"'{name}'" for name in sorted(fixed))
        raise ContextError(f"{what} can't change {names}, set once for all")
    try:
        return type(record).model_validate({**dict(record), **updates})
    except ValidationError as error:
        raise ContextError(f"{what} can't be changed: {'; '.join(validation_problems(error))}") from error
