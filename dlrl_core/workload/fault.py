"""Faults on request: how a process of a job takes one. What a fault does comes with it, from `dlrl chaos`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from dlrl_core.errors import ChaosNotAllowedError

if TYPE_CHECKING:
    from dlrl_core.context import JobContext


class Fault(Protocol):
    """One fault of a process, which gets it pickled, and so must be able to import its class."""

    @property
    def is_of_call(self) -> bool:
        """Whether it comes with a call."""

    def check(self, owner: str, *, has_calls: bool) -> None:
        """Raise DlrlError if a process of this kind can't have it."""

    def is_due(self, method: str) -> bool:
        """Whether it comes with this call; asked before each call while it waits."""

    def carry_out(self) -> None:
        """Let it happen to this process."""


class MasterFault(Protocol):
    """A fault of the Master, or the news that another process got one."""

    def reach(self, master: ChaosNotes) -> None: ...


class FaultInjector:
    """The faults scheduled for one process."""

    def __init__(self, *, is_allowed: bool, owner: str, has_calls: bool = True) -> None:
        self._is_allowed = is_allowed
        self._has_calls = has_calls
        self._owner = owner
        self._waiting: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, fault: Fault) -> None:
        """Schedule a fault. One without a call comes a moment later, so that the request for it is answered first."""
        self.check(fault)
        if fault.is_of_call:
            self._waiting.append(fault)
        else:
            threading.Timer(0.005, fault.carry_out).start()

    def check(self, fault: Fault) -> None:
        """Raise DlrlError if the job does not allow faults, or this process can't have this one."""
        self.check_allowed()
        fault.check(self._owner, has_calls=self._has_calls)

    def check_allowed(self) -> None:
        """Raise ChaosNotAllowedError if the job does not allow faults."""
        if not self._is_allowed:
            raise ChaosNotAllowedError(
                f"{self._owner} belongs to a job that does not allow chaos; build it with .allow_chaos()"
            )

    def before_call(self, method: str) -> None:
        """Carry out the faults that are due at this call."""
        for fault in list(self._waiting):
            if fault.is_due(method):
                self._waiting.remove(fault)
                fault.carry_out()


class ChaosNotes:
    """What the Master knows of faults: those that it gets itself, and those that no incident names yet."""

    def __init__(self, context: JobContext, *, is_allowed: bool) -> None:
        self.context = context
        self.injector = FaultInjector(is_allowed=is_allowed, owner="the master", has_calls=False)
        self.pending: dict[str, str] = {}
        """By process, the last fault that no incident names yet."""

    def take(self, subject: str) -> str | None:
        """The fault behind an incident of this process; None if there was none."""
        return self.pending.pop(subject, None)

    def inject(self, fault: MasterFault) -> None:
        """Let the fault reach the Master. Raises if the job does not allow it."""
        self.injector.check_allowed()
        fault.reach(self)
