"""JobContext: the one persisted record of a job, in memory and in a store; and JobView, the record as it may be shown.

The Master writes the next state here, then acts on it. A Master that is started again loads it and goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypedDict, cast

from dlrl_core.context.change import Change, Collected, JournalEvent
from dlrl_core.context.commits import JobWriter
from dlrl_core.context.process_report import ProcessReport
from dlrl_core.context.records import (
    JobRecord,
    ProgressRecord,
    TrainerRecord,
    WorkloadRecord,
    in_order,
    job_documents,
    read_job,
    read_workloads,
    record_text,
    steady_now,
    workload_key,
)
from dlrl_core.context.redaction import redact
from dlrl_core.context.store import Store, StoredJob, new_commit_id
from dlrl_core.context.write_queue import OutageLimits, WriteQueue
from dlrl_core.errors import ContextError, JobExistsError, JobNotFoundError, StoreError, StoreUnavailableError
from dlrl_core.roles import TRAINER

_NOT_SHOWN = {"record_schema"}
_AS_RECORDED = {"name", "run_id", "state", "state_since", "submitted_at", "ended_at", "why", "waiting_for"}
_REPORT_FIELDS = [field.name for field in dataclasses.fields(ProcessReport)]


class JobView(TypedDict):
    """Plain JSON values without secrets, to be read and not changed. Names are those of the records."""

    version: int
    name: str
    run_id: str
    state: str
    state_since: float
    submitted_at: float
    ended_at: float | None
    why: str | None
    waiting_for: str | None
    degraded: str | None
    """What is wrong between the Master and the store, in one sentence; only the Master knows."""
    store_url: str
    address: str | None
    master_incarnation: int
    trainer: dict[str, Any]
    progress: dict[str, Any]
    """Fields of ProgressRecord, and 'committed_step': how many steps are committed; None if nothing is."""
    incidents: list[dict[str, Any]]
    """Fields of Incident, oldest first."""
    workloads: list[dict[str, Any]]
    """Fields of WorkloadRecord, 'restarts', and under 'report' those of the latest ProcessReport, or None."""
    spec: Any
    """The JobSpec as JSON, opened."""
    plan: Any


def view_of(
    record: JobRecord,
    workloads: Iterable[WorkloadRecord],
    reports: Mapping[str, ProcessReport],
    *,
    version: int,
    degraded: str | None,
) -> JobView:
    """The view of one moment. `why` and `detail` were redacted when they were written."""
    view = {
        **dict.fromkeys(JobView.__annotations__),  # in their order
        **record.model_dump(mode="json", include=_AS_RECORDED),
        "version": version,
        "degraded": redact(degraded),
        "store_url": redact(record.store_url),
        "address": redact(record.address),
        "master_incarnation": record.master_incarnation,
        "trainer": record.trainer.model_dump(mode="json", exclude=_NOT_SHOWN),
        "progress": _progress_view(record.progress),
        "incidents": [one.model_dump(mode="json", exclude=_NOT_SHOWN) for one in record.incidents],
        "workloads": [_workload_view(one, reports.get(one.name)) for one in workloads],
        "spec": _opened(record.spec_json),
        "plan": None if record.plan_json is None else _opened(record.plan_json),
    }
    return cast("JobView", view)


def _progress_view(progress: ProgressRecord) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(progress.model_dump_json(exclude=_NOT_SHOWN))  # NaN is no JSON, "NaN" is
    commit = progress.commit_json
    return {**shown, "committed_step": None if commit is None else int(json.loads(commit)["step"]) + 1}


def _workload_view(record: WorkloadRecord, report: ProcessReport | None) -> dict[str, Any]:
    is_current = report is not None and report.incarnation >= record.incarnation
    shown = {name: getattr(report, name) for name in _REPORT_FIELDS} if is_current else None
    return {**record.model_dump(mode="json", exclude=_NOT_SHOWN), "restarts": record.incarnation, "report": shown}


@functools.lru_cache(maxsize=4)
def _opened(text: str) -> Any:
    """Spec or plan, redacted. Kept: a status is asked several times a second, and these do not change."""
    return redact(json.loads(text))


__all__ = ["Change", "JobContext"]

_CHANGE_TIMEOUT_S = 60.0
_LIMITS = OutageLimits()


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """One commit in memory. Replaced whole, never changed, so that readers need no lock."""

    record: JobRecord
    workloads: Mapping[str, WorkloadRecord]


class JobContext:
    """A job's record. Read it by its properties from any thread, write it only through `change`.

    Two processes may hold the same record; the one that commits second gets a StoreError and has to load
    again. So a Master that was replaced, and does not know it yet, can do no harm.

    While the store can't be reached, changes go on in memory and wait for it in order: `degraded`.
    """

    def __init__(self, store: Store, state: _State, queue: WriteQueue) -> None:
        """Not for callers: use `create` or `load`."""
        self._store = store
        self._state = state
        self._queue = queue
        self._change_lock = threading.Lock()
        self._changing_thread: int | None = None
        self._on_events: Callable[[Sequence[JournalEvent]], None] = lambda _events: None
        self._steady = steady_now(state.record.incidents) - time.monotonic()

    @classmethod
    def create(
        cls,
        store: Store,
        record: JobRecord,
        workloads: Iterable[WorkloadRecord] = (),
        *,
        takeover: bool = False,
        limits: OutageLimits | None = None,
    ) -> JobContext:
        """Write the record of a new run. A job of that name that ended is replaced; its journal is kept.

        Raises JobExistsError if the job of that name has not ended. With `takeover` it is replaced all the
        same, and whoever still writes to it is refused from then on. Waits for no store that is down:
        StoreUnavailableError.
        """
        ordered = _by_name(record.name, workloads)
        old = store.load(record.name)
        try:
            return _write_new(cls, store, record, ordered, old, takeover=takeover, limits=limits or _LIMITS)
        except StoreUnavailableError:
            raise
        except StoreError:  # did somebody create it in between? Then there is a better answer.
            now = store.load(record.name)
            if (now and now.version) == (old and old.version):
                raise
            return _write_new(cls, store, record, ordered, now, takeover=takeover, limits=limits or _LIMITS)

    @classmethod
    def load(cls, store: Store, job: str, *, limits: OutageLimits | None = None) -> JobContext:
        """The record as last committed. Raises JobNotFoundError; SchemaError if this dlrl can't read it."""
        stored = store.load(job)
        if stored is None:
            known = ", ".join(f"'{name}'" for name in store.jobs()) or "none"
            raise JobNotFoundError(job, f"no job is named '{job}'; known jobs: {known}")
        state = _State(record=read_job(job, stored.documents), workloads=read_workloads(job, stored.documents))
        writer = JobWriter(store, job, version=stored.version, commit_id=stored.commit_id)
        return cls(store, state, WriteQueue(writer, last_seq=stored.last_seq, limits=limits or _LIMITS))

    @property
    def record(self) -> JobRecord:
        return self._state.record

    def now(self) -> float:
        """The run's steady clock, which no step of the wall clock moves."""
        return self._steady + time.monotonic()

    @property
    def workloads(self) -> Mapping[str, WorkloadRecord]:
        """All workloads by name, as of the last commit; a later commit makes a new mapping."""
        return MappingProxyType(self._state.workloads)

    def process(self, name: str) -> WorkloadRecord | TrainerRecord:
        """The record of a workload, or of the trainer."""
        return self.record.trainer if name == TRAINER else self._state.workloads[name]

    @property
    def version(self) -> int:
        """Of the last commit in the store that this process made or loaded."""
        return self._queue.version

    @property
    def degraded(self) -> str | None:
        """In one sentence, what is wrong between here and the store; None if nothing is."""
        return self._queue.degraded

    @contextmanager
    def change(self, *, is_durable: bool = False, is_awaited: bool = True) -> Iterator[Change]:
        """A transaction: what the block collects is written in one commit when it ends, then seen here.

        If the block raises, or the store refuses, nothing has changed. One change is open at a time: another
        thread waits for it; the same thread, such as another asyncio task, gets a ContextError.

        If the store does not answer, the change is seen here after a second at most, and its commit waits for
        the store; all later ones wait behind it. Should somebody else have written meanwhile, none of them is,
        and every later change raises. With `is_durable` a change never waits: StoreUnavailableError, after
        which the job must be loaded again. With `is_awaited` False it is seen here at once and written soon: for what
        nothing is done about that a later Master could not find out by itself.
        """
        with self._only_change():
            change = Change(self._state.record, self._state.workloads)
            try:
                yield change
            finally:
                change.close()
            self._commit(change.collected(), is_durable=is_durable, is_awaited=is_awaited)

    def journal(self, after_seq: int | None = None, limit: int | None = None) -> list[JournalEvent]:
        """Events from the store, oldest first, at most `limit`: those of this run, or all after a number.

        Those that wait for the store are not among them yet.
        """
        start = self.record.journal_start if after_seq is None else after_seq
        job = self.record.name
        return [JournalEvent.of(event, job=job) for event in self._store.journal(job, start, limit)]

    def snapshot(self, reports: Mapping[str, ProcessReport] | None = None) -> JobView:
        """The job as plain JSON values that may be shown: redacted, of one commit.

        `reports` are the latest by workload name; only the Master has them.
        """
        state = self._state
        return view_of(
            state.record, state.workloads.values(), reports or {}, version=self.version, degraded=self.degraded
        )

    @property
    def last_seq(self) -> int:
        """Number of the newest journal event: `journal(last_seq - 20)` gives the last twenty."""
        return self._queue.last_seq

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what still waits for the store. Takes no more changes; may be called twice.

        Raises StoreUnavailableError if that takes longer, and says how much is lost with this process. Blocks:
        not for an event loop. The store stays open.
        """
        self._queue.close(timeout_s)

    def on_conflict(self, callback: Callable[[], None]) -> None:
        """Have this called as soon as the store says that somebody else wrote, from the thread that writes.

        Also for a change that went on in memory: then nobody may ask before long.
        """
        self._queue.on_conflict = callback

    def on_events(self, callback: Callable[[Sequence[JournalEvent]], None]) -> None:
        """Have this called with the journal events of each change, from the thread that makes it."""
        self._on_events = callback

    def fail_for(self, seconds: float) -> None:
        """Chaos: for so long, be as if the store could not be reached."""
        self._queue.fail_for(seconds)

    @contextmanager
    def _only_change(self) -> Iterator[None]:
        job = self.record.name
        if self._changing_thread == threading.get_ident():
            raise ContextError(f"a change of job '{job}' is already open in this thread; end it first")
        if not self._change_lock.acquire(timeout=_CHANGE_TIMEOUT_S):
            raise ContextError(f"another thread has a change of job '{job}' open for {_CHANGE_TIMEOUT_S:g} s")
        self._changing_thread = threading.get_ident()
        try:
            yield
        finally:
            self._changing_thread = None
            self._change_lock.release()

    def _commit(self, new: Collected, *, is_durable: bool, is_awaited: bool) -> None:
        if not new.documents and not new.events:
            return
        self._queue.write(
            puts={key: text for key, text in new.documents.items() if text is not None},
            deletes=[key for key, text in new.documents.items() if text is None],
            events=[event.to_text() for event in new.events],
            is_durable=is_durable,
            is_awaited=is_awaited,
        )
        self._state = _State(record=new.record, workloads=_merged(self._state.workloads, new.workloads))
        if new.events:
            self._on_events(new.events)


def _by_name(job: str, workloads: Iterable[WorkloadRecord]) -> Mapping[str, WorkloadRecord]:
    given = list(workloads)
    for name, times in Counter(workload.name for workload in given).items():
        if times > 1:
            raise ContextError(f"job '{job}' has {times} workloads named '{name}'; names are unique in a job")
    return in_order(given)


def _merged(
    old: Mapping[str, WorkloadRecord], touched: Mapping[str, WorkloadRecord | None]
) -> Mapping[str, WorkloadRecord]:
    if not touched:
        return old
    merged = {name: record for name, record in {**old, **touched}.items() if record is not None}
    return merged if touched.keys() <= old.keys() else in_order(merged.values())


def _write_new(
    cls: type[JobContext],
    store: Store,
    record: JobRecord,
    workloads: Mapping[str, WorkloadRecord],
    old: StoredJob | None,
    *,
    takeover: bool,
    limits: OutageLimits,
) -> JobContext:
    replaced = read_job(record.name, old.documents) if old else None
    if old and replaced:
        _check_replaceable(record, replaced, takeover=takeover)
        record = record.model_copy(update={"journal_start": old.last_seq})
    puts = {key: text for key, text in job_documents(record).items() if text is not None}
    puts |= {workload_key(name): record_text(workload) for name, workload in workloads.items()}
    commit_id = new_commit_id()
    version = store.commit(
        record.name,
        expected_version=old.version if old else 0,
        puts=puts,
        deletes=[key for key in old.documents if key not in puts] if old else (),
        events=[_submitted(record, replaced).to_text()],
        commit_id=commit_id,
    )
    writer = JobWriter(store, record.name, version=version, commit_id=commit_id)
    queue = WriteQueue(writer, last_seq=record.journal_start + 1, limits=limits)
    return cls(store, _State(record=record, workloads=workloads), queue)


def _submitted(new: JobRecord, old: JobRecord | None) -> JournalEvent:
    message = f"job '{new.name}' was submitted"
    if old is None:
        return JournalEvent(kind="submitted", message=message, subject="job")
    return JournalEvent(
        kind="submitted",
        message=f"{message} and replaces run '{old.run_id}', which was '{old.state}'",
        subject="job",
        data={"replaced_run": old.run_id, "replaced_state": old.state},
    )


def _check_replaceable(new: JobRecord, old: JobRecord, *, takeover: bool) -> None:
    if new.run_id == old.run_id:
        raise ContextError(f"job '{new.name}' already has a run '{new.run_id}'; a new run needs a new run_id")
    if old.state.is_final or takeover:
        return
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(old.state_since))
    raise JobExistsError(
        new.name,
        f"job '{new.name}' is '{old.state}' since {since} (run '{old.run_id}'); "
        f"stop it with: dlrl stop {new.name}, or choose another name",
    )
