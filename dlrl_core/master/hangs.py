"""Calls that take too long: their stacks go to the journal, then the process is taken for dead."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

from dlrl_core.context import JobContext, ProcessReport, WorkloadRecord, WorkloadState
from dlrl_core.master.crew import Crew
from dlrl_core.master.liveness import stacks_of
from dlrl_core.scheduler.workload_launcher import kill
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
        self._since = time.time()
        """Before that, reports went to another Master."""
        self._said: str | None = None
        self._reasons: dict[str, str] = {}
        """By the actor id of the process that was ended."""

    def reason_of(self, actor_id: str) -> str | None:
        """Why we ended this process; None if we did not."""
        return self._reasons.get(actor_id)

    async def watch(self, reports: Mapping[str, ProcessReport]) -> None:
        """Judge all workloads, again and again. An error on the way must not end it: nobody would notice."""
        while self._limits:
            await asyncio.sleep(_LOOK_S)
            for record in list(self._context.workloads.values()):
                try:
                    await self._look_at(record, reports.get(record.name))
                except Exception as error:  # noqa: BLE001 - one that can't be judged now is judged at the next look
                    self._say(f"workload '{record.name}' could not be judged: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(f"dlrl: {text}", file=sys.stderr, flush=True)

    async def _look_at(self, record: WorkloadRecord, report: ProcessReport | None) -> None:
        reason = self.judged(record, report, time.time())
        if reason is not None and record.actor_id is not None and record.actor_id not in self._reasons:
            await self._end(record.name, record.actor_id, reason)

    def judged(self, record: WorkloadRecord, report: ProcessReport | None, now: float) -> str | None:
        """Why this process must be taken for dead; None if it need not."""
        limit_s = self._limits.get(record.role)
        if limit_s is None or record.state is not WorkloadState.READY:
            return None
        if report is None or report.pid != record.pid or report.incarnation != record.incarnation:
            report, heard_at = None, max(record.since, self._since)
        else:
            heard_at = report.sent_at
        if report and report.call is not None and report.call_since is not None and now - report.call_since > limit_s:
            return f"its call '{report.call}' has run for {now - report.call_since:.0f} s (limit {limit_s:g} s)"
        silence_s = max(_SILENCE_S, limit_s)
        if now - heard_at > silence_s:
            return f"it sent no report for {now - heard_at:.0f} s (limit {silence_s:g} s)"
        return None

    async def _end(self, name: str, actor_id: str, reason: str) -> None:
        host = self._crew.host_of(name)
        if host is None:
            return  # it died with an earlier Master, and that is seen
        stacks = (await stacks_of(host))[-_LONGEST_STACKS:]
        if self._context.workloads[name].actor_id != actor_id:
            return  # it was restarted meanwhile, for another's death
        with self._context.change() as change:
            change.event(
                "hung", f"workload '{name}' hangs: {reason}; its stacks are kept here", subject=name, stacks=stacks
            )
        self._reasons[actor_id] = reason
        kill(host)
