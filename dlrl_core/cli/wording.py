"""Numbers and times as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NONE = "-"


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


def number(value: Any) -> str:
    """A metric; one that is no number comes as its text, such as 'NaN'."""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def steps(step: int | None, total: int | None) -> str:
    if step is None:
        return NONE
    return f"{step}/{total}" if total is not None else str(step)


def slowest(phase_seconds: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """The phases that took the most time, longest first."""
    return sorted(phase_seconds.items(), key=lambda item: -item[1])[:count]
