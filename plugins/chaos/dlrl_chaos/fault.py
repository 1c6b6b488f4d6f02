"""The faults of `dlrl chaos`: what each does to the process that gets it, and what the job's Master notes of it."""

from __future__ import annotations

import enum
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrl_core.errors import DlrlError

if TYPE_CHECKING:
    from dlrl_core.workload.fault import ChaosNotes

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


@dataclass(kw_only=True)
class Fault:
    """One fault: at once, or, if a method is named, at its n-th call from now on."""

    kind: FaultKind
    method: str | None = None
    nth: int = 1
    seconds: float = 5.0
    _calls: int = field(default=0, init=False, repr=False)
    """Of its method, since the process got the fault."""

    @property
    def is_of_call(self) -> bool:
        """Whether it comes with a call: of its method, or of any if it names none."""
        return self.method is not None or self.kind in (FaultKind.HANG, FaultKind.SLOW)

    def check(self, owner: str, *, has_calls: bool) -> None:
        """Raise DlrlError if a process of this kind can't have it."""
        if self.kind is FaultKind.STORE or (self.is_of_call and not has_calls):
            raise DlrlError(f"{owner} can't have the fault '{self.kind}' this way; choose another process")

    def is_due(self, method: str) -> bool:
        """Whether it comes with this call, which is counted if it is one of its method."""
        if self.method is None:
            return True
        self._calls += self.method == method
        return self.method == method and self._calls >= self.nth

    def carry_out(self) -> None:
        """Do to this process what the fault says."""
        match self.kind:
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
                time.sleep(self.seconds)
            case FaultKind.STORE:  # the Master handles it
                return

    def reach(self, master: ChaosNotes) -> None:
        """Let the fault happen to the Master, or to its store."""
        if self.kind is FaultKind.STORE:
            master.context.fail_for(self.seconds)
        else:
            master.injector.add(self)


@dataclass(frozen=True, kw_only=True)
class FaultNote:
    """The news for the Master that a process got a fault: an event, and a part of the incident that it causes."""

    message: str
    subject: str
    kind: FaultKind

    def reach(self, master: ChaosNotes) -> None:
        """Write the event; if the incident is already written, the fault is added to it."""
        last = next((one for one in reversed(master.context.record.incidents) if one.subject == self.subject), None)
        is_late = last is not None and last.chaos is None and time.time() - last.at <= _LAG_S
        with master.context.change() as change:
            change.event("chaos", self.message, subject=self.subject)
            if self.kind in (FaultKind.SLOW, FaultKind.STORE):
                return
            if last is not None and is_late:
                change.incident(last.model_copy(update={"chaos": self.message}))
            else:
                master.pending[self.subject] = self.message
