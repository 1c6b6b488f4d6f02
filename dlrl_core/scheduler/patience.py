"""Waiting as long as something moves, so that a loaded machine is no error and a stuck process is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from pathlib import Path


class Patience:
    """A limit on standing still: `is_lost` once `look` has returned the same value for `still_s`, or after `most_s`."""

    def __init__(self, look: Callable[[], Hashable], *, still_s: float, most_s: float) -> None:
        self._look = look
        self._still_s = still_s
        self._most_s = most_s
        self._began = self._moved = time.monotonic()
        self._last: Hashable = None

    def is_lost(self) -> bool:
        """Look once more, and tell whether to give up."""
        now, seen = time.monotonic(), self._look()
        if seen != self._last:
            self._last, self._moved = seen, now
        return now - self._moved >= self._still_s or now - self._began >= self._most_s

    def __str__(self) -> str:
        """How long was waited, and which limit that reached."""
        now = time.monotonic()
        waited, still = now - self._began, now - self._moved
        if still >= self._still_s:
            return f"{waited:.0f} s, and nothing moved for the last {still:.0f} s (limit {self._still_s:g} s)"
        return f"{waited:.0f} s (limit {self._most_s:g} s)"


def sizes_of(folder: Path, pattern: str) -> Hashable:
    """The files below a folder that match, with their sizes: a value that changes when one of them grows."""
    found = []
    for path in folder.glob(pattern):
        try:
            found.append((path.name, path.stat().st_size))
        except OSError:  # it was removed meanwhile
            continue
    return tuple(sorted(found))
