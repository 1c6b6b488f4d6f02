"""JobView: a job as it may be shown to anybody, `dlrl status --json` included."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from dlrl_core.context.process_report import ProcessReport
from dlrl_core.context.records import JobRecord, ProgressRecord, WorkloadRecord
from dlrl_core.context.redaction import redact

_NOT_SHOWN = {"record_schema"}
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
    return {
        "version": version,
        "name": record.name,
        "run_id": record.run_id,
        "state": record.state.value,
        "state_since": record.state_since,
        "submitted_at": record.submitted_at,
        "ended_at": record.ended_at,
        "why": record.why,
        "waiting_for": record.waiting_for,
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
