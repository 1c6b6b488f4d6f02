"""What is known of jobs: by their Masters where a cluster is named, else by their records in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrl_core.cli.clusters import Masters
from dlrl_core.errors import ClusterError, ContextError, JobNotFoundError

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


def all_jobs(store: Store, masters: Masters | None) -> list[KnownJob]:
    """Every job of the store and of the cluster, the newest first."""
    names = {*store.jobs(), *(masters.names() if masters else ())}
    jobs = [job for name in sorted(names) if (job := _look_up(name, store, masters)) is not None]
    return sorted(jobs, key=lambda job: -(job.row()["submitted_at"] or 0.0))


def one_job(name: str, store: Store, masters: Masters | None) -> KnownJob:
    """One job with its last events. Raises JobNotFoundError, or ContextError if nothing of it can be read."""
    job = _look_up(name, store, masters)
    if job is None:
        known = ", ".join(f"'{known.name}'" for known in all_jobs(store, masters)) or "none"
        raise JobNotFoundError(name, f"no job is named '{name}'; known jobs: {known}")
    if job.status is None:
        raise ContextError(job.note)
    return job


def _look_up(name: str, store: Store, masters: Masters | None) -> KnownJob | None:
    from dlrl_core.api import JobStatus
    from dlrl_core.context import JobContext

    by_master, silence = _asked(name, masters)
    try:
        context = JobContext.load(store, name)
        events = context.journal(max(context.record.journal_start, context.last_seq - _EVENTS_SHOWN))
    except JobNotFoundError:
        if silence:
            return KnownJob(name=name, status=None, source="master", note=silence)
        return None if by_master is None else KnownJob(name=name, status=by_master, source="master")
    except ContextError as error:
        note = None if by_master else str(error)
        return KnownJob(name=name, status=by_master, source="master" if by_master else "store", note=note)
    if by_master is not None:
        return KnownJob(name=name, status=by_master, source="master", events=events)
    status = JobStatus.from_snapshot(context.snapshot())
    note = None if status.is_final else silence or _not_asked(name, status, masters)
    return KnownJob(name=name, status=status, source="store", note=note, events=events)


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
