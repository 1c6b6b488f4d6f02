"""What every benchmark prints: a small table, and as its last line one JSON object of its ratios."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One claim: ours against theirs, sampled in turns, and the most the ratio may be."""

    name: str
    ours_s: Sequence[float]
    theirs_s: Sequence[float]
    bar: float
    is_of_medians: bool = False
    """Compare the medians of both sides: for long samples, whose neighbours do not share their noise."""
    is_time: bool = True
    """Else the samples are multiples of something, not seconds."""
    note: str = ""
    """What a reader of the ratio has to know, in a few words."""

    @property
    def ratio(self) -> float:
        """By default the median over neighbouring samples: noise that hits both sides of a pair falls out."""
        if self.is_of_medians:
            return statistics.median(self.ours_s) / statistics.median(self.theirs_s)
        return statistics.median(ours / theirs for ours, theirs in zip(self.ours_s, self.theirs_s, strict=True))

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.bar


def report(comparisons: Sequence[Comparison], *, ours: str, theirs: str) -> None:
    """Print all of it and exit with 1 if a bar is missed."""
    width = max(len(comparison.name) for comparison in comparisons)
    print(f"{'':{width}}  {ours:>12}  {theirs:>12}  {'ratio':>6}  {'bar':>5}")
    for one in comparisons:
        show = _time if one.is_time else "{:.3f} x".format
        medians = [show(statistics.median(side)) for side in (one.ours_s, one.theirs_s)]
        ending = "".join(f"  {said}" for said in ("" if one.is_met else "missed", one.note) if said)
        print(f"{one.name:{width}}  {medians[0]:>12}  {medians[1]:>12}  {one.ratio:6.3f}  {one.bar:5.2f}{ending}")
    print(json.dumps({one.name: round(one.ratio, 4) for one in comparisons}))
    sys.exit(0 if all(one.is_met for one in comparisons) else 1)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3f} ms"
