"""What is known of jobs: by their Masters where a cluster is named, else by their records in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import ClusterError, ContextError, JobNotFoundError
from dlrl_why.masters import Masters

if TYPE_CHECKING:
    from dlrl_core.api import JobStatus
    from dlrl_core.context import JournalEvent, Store

_EVENTS_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class KnownJob:
    """One job, and how we know of it."""

    name: str
    status: JobStatus | None
    """None if its record can't be read; `note` says why."""
    source: str
    """'master' or 'store'."""
    note: str | None = None
    """What a reader must know to trust the status."""
    store_problem: str | None = None
    """Why nothing but the status is known, though its Master answers."""
    events: Sequence[JournalEvent] = ()

    def row(self) -> dict[str, Any]:
        """One plain row for lists."""
        status = self.status
        return {
            "name": self.name,
            "state": status.state if status else "unreadable",
            "step": status.step if status else None,
            "total_steps": status.total_steps if status else None,
            "submitted_at": status.view["submitted_at"] if status else None,
            "ended_at": status.view["ended_at"] if status else None,
            "why": status.why if status else None,
            "waiting_for": status.waiting_for if status else None,
            "source": self.source,
            "note": self.note,
        }


@dataclass(frozen=True, kw_only=True)
class KnownJobs:
    """All jobs of the store and of the cluster, the newest first."""

    jobs: Sequence[KnownJob]
    store_problem: str | None = None
    """Why the store could not be asked; then these are the jobs with a living Master, and no others."""


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What the store says of a job."""

    status: JobStatus | None = None
    """None if it can't be read."""
    problem: str | None = None
    events: Sequence[JournalEvent] = ()


def all_jobs(store: Store, masters: Masters | None) -> KnownJobs:
    """Every job of the store and of the cluster.

    A store that can't be asked is told, and the Masters are asked alone; ContextError if no cluster is named either.
    """
    recorded, problem = _recorded(store, masters)
    names = {*recorded, *(masters.names() if masters else ())}
    asked = store if problem is None else None
    jobs = [job for name in sorted(names) if (job := _look_up(name, asked, masters)) is not None]
    return KnownJobs(jobs=sorted(jobs, key=lambda job: -(job.row()["submitted_at"] or 0.0)), store_problem=problem)


def _recorded(store: Store, masters: Masters | None) -> tuple[Sequence[str], str | None]:
    """The names in the store, or why it did not tell them."""
    try:
        return store.jobs(), None
    except ContextError as error:
        if masters is None:
            raise
        return (), str(error)


def one_job(name: str, store: Store, masters: Masters | None, *, events: int | None = _EVENTS_SHOWN) -> KnownJob:
    """One job with its last events, or with all of this run.

    Raises JobNotFoundError, or ContextError if nothing of it can be read.
    """
    job = _look_up(name, store, masters, events=events)
    if job is None:
        known = ", ".join(f"'{known.name}'" for known in all_jobs(store, masters).jobs) or "none"
        raise JobNotFoundError(name, f"no job is named '{name}'; known jobs: {known}")
    if job.status is None:
        raise ContextError(job.note)
    return job


def _look_up(
    name: str, store: Store | None, masters: Masters | None, *, events: int | None = _EVENTS_SHOWN
) -> KnownJob | None:
    """Without a store, only the Master is asked."""
    by_master, silence = _asked(name, masters)
    record = _read(name, store, events) if store is not None else None
    if by_master is not None:
        known = KnownJob(name=name, status=by_master, source="master")
        return known if store is None else _with_record(known, by_master, record)
    if record is None:
        return KnownJob(name=name, status=None, source="master", note=silence) if silence else None
    if record.status is None:
        return KnownJob(name=name, status=None, source="store", note="; ".join(filter(None, (silence, record.problem))))
    return KnownJob(
        name=name,
        status=record.status,
        source="store",
        note=None if record.status.is_final else silence or _not_asked(name, record.status, masters),
        events=record.events,
    )


def _read(name: str, store: Store, events: int | None) -> _Record | None:
    """None if the store has no such job."""
    from dlrl_core.api import JobStatus
    from dlrl_core.context import JobContext

    try:
        context = JobContext.load(store, name)
        start = context.record.journal_start
        return _Record(
            status=JobStatus(view=context.snapshot()),
            events=context.journal(start if events is None else max(start, context.last_seq - events)),
        )
    except JobNotFoundError:
        return None
    except ContextError as error:
        return _Record(problem=str(error))


def _with_record(known: KnownJob, status: JobStatus, record: _Record | None) -> KnownJob:
    """What its Master says, and what the store has of the same run; or why it has nothing."""
    if record is not None and record.problem is not None:
        return replace(known, store_problem=f"its journal can't be read: {record.problem}")
    if record is None or record.status is None or record.status.view["run_id"] != status.view["run_id"]:
        url = status.view["store_url"]
        return replace(known, store_problem=f"its journal is in another store, {url}; to read it, set DLRL_STORE")
    return replace(known, events=record.events)


def _asked(name: str, masters: Masters | None) -> tuple[JobStatus | None, str | None]:
    """What the Master said, or why it said nothing."""
    try:
        return (masters.status(name) if masters else None), None
    except ClusterError as error:
        return None, str(error)


def _not_asked(name: str, status: JobStatus, masters: Masters | None) -> str:
    if masters is None:
        return (
            f"the record of job '{name}' says '{status.state}', but no cluster is named, so its master was not asked; "
            "say --address or set RAY_ADDRESS"
        )
    return (
        f"the record of job '{name}' says '{status.state}', but this cluster has no master of it: "
        "it runs elsewhere, or it died with its cluster"
    )
