"""Verdict: what one check found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is. Only a problem makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One line of the doctor."""

    level: Level
    subject: str
    """What was looked at, in a word or two."""
    seen: str
    todo: str | None = None
    """What to do about it; a verdict that is not ok has one."""


def ok(subject: str, seen: str) -> Verdict:
    return Verdict(level=Level.OK, subject=subject, seen=seen)


def warning(subject: str, seen: str, todo: str) -> Verdict:
    return Verdict(level=Level.WARNING, subject=subject, seen=seen, todo=todo)


def problem(subject: str, seen: str, todo: str) -> Verdict:
    return Verdict(level=Level.PROBLEM, subject=subject, seen=seen, todo=todo)
