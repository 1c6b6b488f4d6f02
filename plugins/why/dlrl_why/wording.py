"""Moments and names of processes as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from dlrl_core.cli.wording import duration

_NAMES_SHOWN = 4


def since(at: float) -> str:
    """How long ago that was, in whole seconds."""
    seconds = max(0.0, time.time() - at)
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def clock(at: float) -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def processes(names: Iterable[str]) -> str:
    """Names of processes; those of a role that are many as their number, such as '128 of actor'."""
    roles: dict[str, list[str]] = {}
    for name in names:
        roles.setdefault(name.rpartition("-")[0] or name, []).append(name)
    return ", ".join(
        ", ".join(members) if len(members) <= _NAMES_SHOWN else f"{len(members)} of {role}"
        for role, members in roles.items()
    )
