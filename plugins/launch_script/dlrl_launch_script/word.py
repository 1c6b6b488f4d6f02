"""A word of a command line that knows where it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """One word of a command line. `where` is for error messages, such as 'train.sh:14' or 'word 3'."""

    text: str
    where: str
