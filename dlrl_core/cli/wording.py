"""Numbers and times as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

NONE = "-"
_NAMES_SHOWN = 4


def duration(seconds: float) -> str:
    """Such as '3.1 ms', '6.8 s', '2 min 05 s', '3 h 20 min', '2 d 4 h'."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.{3 if seconds >= 0.001 else 2}g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s" if seconds < 9.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def since(at: float) -> str:
    """How long ago that was, in whole seconds."""
    seconds = max(0.0, time.time() - at)
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def clock(at: float) -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def clock_time(seconds: float) -> str:
    """A running time of constant width, such as '0:02:05'."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def number(value: Any) -> str:
    """A metric; one that is no number comes as its text, such as 'NaN'."""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def steps(step: int | None, total: int | None) -> str:
    if step is None:
        return NONE
    return f"{step}/{total}" if total is not None else str(step)


def speed(steps_per_s: float) -> str:
    """Steps per second where that is at least one, else seconds per step."""
    return f"{steps_per_s:.3g} steps/s" if steps_per_s >= 1 else f"{duration(1 / steps_per_s)}/step"


def slowest(phase_seconds: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """The phases that took the most time, longest first."""
    return sorted(phase_seconds.items(), key=lambda item: -item[1])[:count]


def processes(names: Iterable[str]) -> str:
    """Names of processes; those of a role that are many as their number, such as '128 of actor'."""
    roles: dict[str, list[str]] = {}
    for name in names:
        roles.setdefault(name.rpartition("-")[0] or name, []).append(name)
    return ", ".join(
        ", ".join(members) if len(members) <= _NAMES_SHOWN else f"{len(members)} of {role}"
        for role, members in roles.items()
    )
