"""Hints for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The middle of a sentence about an unknown name: a question if one is close, else a semicolon."""
    spelling = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), spelling, n=1)
    return f"; did you mean '{spelling[close[0]]}'?" if close else ";"
