"""Faults on order: what `dlrl chaos` makes the processes of a job suffer, for real."""

from __future__ import annotations

import enum
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

from dlrl_core.errors import ChaosNotAllowedError, DlrlError


class FaultKind(enum.StrEnum):
    """What happens."""

    KILL = "kill"
    """SIGKILL of the process."""
    FREEZE = "freeze"
    """SIGSTOP of the process: it lives and says nothing."""
    HANG = "hang"
    """The call never returns; the process answers otherwise."""
    SLOW = "slow"
    """The call takes some seconds longer."""
    NODE = "node"
    """SIGKILL of the node's raylet: all processes of Ray there go with it."""
    STORE = "store"
    """The Master can't reach its store for some seconds."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. Without a method it comes at once, else at the n-th call of it from now on."""

    kind: FaultKind
    method: str | None = None
    nth: int = 1
    seconds: float = 5.0


class Suffering:
    """The faults that a process has before it."""

    def __init__(self, *, is_allowed: bool, owner: str, has_calls: bool = True) -> None:
        self._is_allowed = is_allowed
        self._has_calls = has_calls
        self._owner = owner
        self._waiting: list[Fault] = []
        self._calls: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, fault: Fault) -> None:
        """Take a fault; one that is due now is suffered a moment later, so that whoever ordered it gets an answer."""
        if not self._is_allowed:
            raise ChaosNotAllowedError(
                f"{self._owner} belongs to a job that does not allow chaos; build it with .allow_chaos()"
            )
        is_of_call = fault.method is not None or fault.kind in (FaultKind.HANG, FaultKind.SLOW)
        if fault.kind is FaultKind.STORE or (is_of_call and not self._has_calls):
            raise DlrlError(f"{self._owner} can't suffer '{fault.kind}' this way; it is for others")
        if is_of_call:
            self._waiting.append(fault)
        else:
            threading.Timer(0.005, suffer, args=(fault,)).start()

    def before_call(self, method: str) -> None:
        """Suffer what is due at this call."""
        self._calls[method] += 1
        for fault in list(self._waiting):
            if fault.method in (None, method) and (fault.method is None or self._calls[method] >= fault.nth):
                self._waiting.remove(fault)
                suffer(fault)


def suffer(fault: Fault) -> None:
    """Let it happen to this process."""
    match fault.kind:
        case FaultKind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case FaultKind.FREEZE:
            os.kill(os.getpid(), signal.SIGSTOP)
        case FaultKind.NODE:
            os.kill(os.getppid(), signal.SIGKILL)  # a worker's parent is its raylet
        case FaultKind.HANG:
            while True:
                time.sleep(0.05)  # in Python, so that it can be interrupted
        case FaultKind.SLOW:
            time.sleep(fault.seconds)
        case FaultKind.STORE:  # the master's own affair
            return
