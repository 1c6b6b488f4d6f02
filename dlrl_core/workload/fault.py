"""Faults on request: what `dlrl chaos` does to the processes of a job, and what its Master notes of that."""

from __future__ import annotations

import enum
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrl_core.errors import ChaosNotAllowedError, DlrlError

if TYPE_CHECKING:
    from dlrl_core.context import JobContext

_LAG_S = 2.0
"""A fault is noted after it was injected: the incident that it caused may be written before."""


class FaultKind(enum.StrEnum):
    """What is done to a process."""

    KILL = "kill"
    """SIGKILL of the process."""
    FREEZE = "freeze"
    """SIGSTOP of the process: it exists, and answers nothing."""
    HANG = "hang"
    """The call never returns; the process still answers control calls."""
    SLOW = "slow"
    """The call takes some seconds longer."""
    NODE = "node"
    """SIGKILL of the node's raylet: all processes of Ray there go with it."""
    STORE = "store"
    """The Master can't reach its store for some seconds."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: at once, or, if a method is named, at its n-th call from now on."""

    kind: FaultKind
    method: str | None = None
    nth: int = 1
    seconds: float = 5.0

    @property
    def is_of_call(self) -> bool:
        """Whether it comes with a call: of its method, or of any if it names none."""
        return self.method is not None or self.kind in (FaultKind.HANG, FaultKind.SLOW)


class FaultInjector:
    """The faults scheduled for one process."""

    def __init__(self, *, is_allowed: bool, owner: str, has_calls: bool = True) -> None:
        self._is_allowed = is_allowed
        self._has_calls = has_calls
        self._owner = owner
        self._waiting: list[Fault] = []
        self._calls: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, fault: Fault) -> None:
        """Schedule a fault. One without a call comes a moment later, so that the request for it is answered first."""
        self.check(fault)
        if fault.is_of_call:
            self._waiting.append(fault)
        else:
            threading.Timer(0.005, carry_out, args=(fault,)).start()

    def check(self, fault: Fault) -> None:
        """Raise DlrlError if the job does not allow faults, or this process can't have this one."""
        self.check_allowed()
        if fault.kind is FaultKind.STORE or (fault.is_of_call and not self._has_calls):
            raise DlrlError(f"{self._owner} can't have the fault '{fault.kind}' this way; choose another process")

    def check_allowed(self) -> None:
        """Raise ChaosNotAllowedError if the job does not allow faults."""
        if not self._is_allowed:
            raise ChaosNotAllowedError(
                f"{self._owner} belongs to a job that does not allow chaos; build it with .allow_chaos()"
            )

    def before_call(self, method: str) -> None:
        """Carry out the faults that are due at this call."""
        self._calls[method] += 1
        for fault in list(self._waiting):
            if fault.method in (None, method) and (fault.method is None or self._calls[method] >= fault.nth):
                self._waiting.remove(fault)
                carry_out(fault)


def carry_out(fault: Fault) -> None:
    """Do to this process what the fault says."""
    match fault.kind:
        case FaultKind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case FaultKind.FREEZE:
            os.kill(os.getpid(), signal.SIGSTOP)
        case FaultKind.NODE:
            os.kill(os.getppid(), signal.SIGKILL)  # a worker's parent is its raylet
        case FaultKind.HANG:
            while True:
                time.sleep(0.05)
        case FaultKind.SLOW:
            time.sleep(fault.seconds)
        case FaultKind.STORE:  # the Master handles it
            return


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
            if kind in (FaultKind.SLOW, FaultKind.STORE):
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
