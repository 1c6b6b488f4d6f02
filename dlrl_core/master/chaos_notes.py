"""Faults that are injected into a job on purpose, as its Master knows them."""

from __future__ import annotations

import time

from dlrl_core.context import JobContext
from dlrl_core.workload.fault import Fault, FaultInjector, FaultKind

_LAG_S = 2.0
"""A fault is noted after it was injected: the incident that it caused may be written before."""
_HARMLESS = (FaultKind.SLOW, FaultKind.STORE)


class ChaosNotes:
    """Writes each fault to the journal, and to the incident that it causes."""

    def __init__(self, context: JobContext, *, is_allowed: bool) -> None:
        self._context = context
        self._injector = FaultInjector(is_allowed=is_allowed, owner="the master", has_calls=False)
        self._pending: dict[str, str] = {}
        """By process, the last fault that no incident names yet."""

    def note(self, message: str, subject: str, kind: FaultKind) -> None:
        """A process got a fault; if its incident is already written, the fault is added to it."""
        last = next((one for one in reversed(self._context.record.incidents) if one.subject == subject), None)
        is_late = last is not None and last.chaos is None and time.time() - last.at <= _LAG_S
        with self._context.change() as change:
            change.event("chaos", message, subject=subject)
            if kind in _HARMLESS:
                return
            if last is not None and is_late:
                change.incident(last.model_copy(update={"chaos": message}))
            else:
                self._pending[subject] = message

    def take(self, subject: str) -> str | None:
        """The fault behind an incident of this process; None if there was none."""
        return self._pending.pop(subject, None)

    def inject(self, fault: Fault) -> None:
        """Let the fault happen to the Master. Raises if the job does not allow it."""
        if fault.kind is FaultKind.STORE:
            self._injector.check_allowed()
            self._context.fail_for(fault.seconds)
        else:
            self._injector.add(fault)
