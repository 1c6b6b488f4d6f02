"""Detectors: pure functions from one look at a job to what is wrong in it. Plugins add more by a hook.

A detector decides nothing and touches nothing: the control loop takes what it finds as an observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.context.records import WorkloadRecord
from dlrl_core.failover.finding import WorkloadHangs
from dlrl_core.spec import JobSpec

_SILENCE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """A job at one moment, as its Master knows it. Times are seconds since the epoch."""

    now: float
    since: float
    """When this Master began to receive reports."""
    spec: JobSpec
    workloads: Mapping[str, WorkloadRecord]
    reports: Mapping[str, ProcessReport]
    """The last report of each workload that sent one."""


def find_hangs(look: JobLook) -> Iterator[WorkloadHangs]:
    """Calls that run longer than the `hang_limit` of their role, and processes that send no reports.

    Roles without a limit are not judged, nor are processes that are being started.
    """
    limits = {role.role: role.hang_limit for role in look.spec.roles if role.hang_limit is not None}
    for record in look.workloads.values():
        limit_s = limits.get(record.role)
        if limit_s is None or record.state is not WorkloadState.READY or record.actor_id is None:
            continue
        reason = _hang(record, look.reports.get(record.name), look, limit_s)
        if reason is not None:
            yield WorkloadHangs(name=record.name, reason=reason, actor_id=record.actor_id)


def _hang(record: WorkloadRecord, report: ProcessReport | None, look: JobLook, limit_s: float) -> str | None:
    if report is None or report.pid != record.pid or report.incarnation != record.incarnation:
        report, heard_at = None, max(record.since, look.since)
    else:
        heard_at = report.sent_at
    if report and report.call is not None and report.call_since is not None:
        seconds = look.now - report.call_since
        if seconds > limit_s:
            return f"its call '{report.call}' has run for {seconds:.0f} s (limit {limit_s:g} s)"
    silence_s = max(_SILENCE_S, limit_s)
    if look.now - heard_at > silence_s:
        return f"it sent no report for {look.now - heard_at:.0f} s (limit {silence_s:g} s)"
    return None
