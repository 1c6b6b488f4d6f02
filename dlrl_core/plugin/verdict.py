"""Verdict: what one check of `dlrl doctor` found; DoctorRequest: what the user asked of the checks."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DoctorRequest:
    """The options of `dlrl doctor`, which every check gets."""

    address: str | None = None
    """The Ray cluster that was named; None: whatever RAY_ADDRESS names, if it is set."""
    clean: bool = False
    """Whether a check may remove what is certainly not in use any more."""


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
