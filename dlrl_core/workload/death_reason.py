"""How Ray says that a process is gone, and why in a few words: its own words run over half a page."""

from __future__ import annotations

from ray.exceptions import (
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

GONE = (
    RayActorError,
    OutOfMemoryError,
    RuntimeEnvSetupError,
    ActorUnschedulableError,
    NodeDiedError,
    WorkerCrashedError,
)
"""What a call to an actor raises when its process is gone, or never came. Most of them share no base but Ray's own."""

LOST = (*GONE, ObjectLostError)
"""What a call raises that failed by a death: of its own process, or of one that its arguments were to come from."""

_SEEN = (
    # Ray's words, in the order in which they are looked for, and ours
    ("low on memory", "its node ran low on memory and Ray killed it"),
    ("killed by `ray.kill`", "it was killed by ray.kill"),
    ("The node died", "its node died"),
    ("node was terminated", "its node was terminated"),
    ("its node has died", "its node died"),
    ("connection error code 2", "its process ended without a word (SIGKILL, out of memory, or a crash)"),
    ("SYSTEM_ERROR", "its process ended without a word (SIGKILL, out of memory, or a crash)"),
    ("exit()", "its process called exit()"),
    ("INTENDED_USER_EXIT", "its process called exit()"),
)
_LONGEST = 200


def death_reason(error: BaseException) -> str:
    """Ray's actor error in a few words; its own first words where we know none."""
    text = " ".join(str(error).split())
    known = next((ours for theirs, ours in _SEEN if theirs in text), None)
    return known or (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
