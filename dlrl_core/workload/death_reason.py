"""The exceptions by which Ray reports that a process is gone, and the reason of such a death in a few words."""

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
"""What a call to an actor raises if its process is gone or never started. Ray has no common base class for these."""

LOST = (*GONE, ObjectLostError)
"""What a call raises if its own process died, or one that its arguments were to come from."""

_SEEN = (
    # Text in Ray's message, in the order of search, and the reason that is shown for it
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
    """The reason in an error of Ray, in a few words; the beginning of its message if that is not known."""
    text = " ".join(str(error).split())
    known = next((ours for theirs, ours in _SEEN if theirs in text), None)
    return known or (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
