"""Calls that take too long: their stacks go to the journal, then the process is taken for dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from dlrl_core.context import JobContext, WorkloadReport
from dlrl_core.master.crew import Crew
from dlrl_core.roles import RoleType
from dlrl_core.spec import JobSpec

_LOOK_S = 0.5
_SILENCE_S = 30.0
_LONGEST_STACKS = 20_000


class HangWatch:
    """Looks at the workloads' reports. Only roles that say how long a call may take are judged."""

    def __init__(self, spec: JobSpec, crew: Crew, context: JobContext) -> None:
        self._limits = {role.role: role.hang_s for role in spec.roles if role.hang_s is not None}
        self._crew = crew
        self._context = context
        self._reasons: dict[str, str] = {}

    def reason_of(self, name: str) -> str | None:
        """Why we ended this workload; told once."""
        return self._reasons.pop(name, None)

    async def watch(self, reports: Mapping[str, WorkloadReport]) -> None:
        while self._limits:
            await asyncio.sleep(_LOOK_S)
            for report in list(reports.values()):
                reason = self._judged(report)
                if reason is not None and report.name not in self._reasons:
                    await self._end(report.name, reason)

    def _judged(self, report: WorkloadReport) -> str | None:
        limit_s = self._limits.get(RoleType(report.role))
        record = self._context.workloads.get(report.name)
        if limit_s is None or record is None or record.pid != report.pid:
            return None
        now = time.time()
        if report.call is not None and report.call_since is not None and now - report.call_since > limit_s:
            return f"its call '{report.call}' has run for {now - report.call_since:.0f} s (limit {limit_s:g} s)"
        silence_s = max(_SILENCE_S, limit_s)
        if now - report.sent_at > silence_s:
            return f"it sent no report for {now - report.sent_at:.0f} s (limit {silence_s:g} s)"
        return None

    async def _end(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        stacks = (await self._crew.stacks(name))[-_LONGEST_STACKS:]
        with self._context.change() as change:
            change.event(
                "hung", f"workload '{name}' hangs: {reason}; its stacks are kept here", subject=name, stacks=stacks
            )
        self._crew.kill(name)
