"""JobState: where a job is, and which state may follow which; TrainerOutcome: how its trainer ended.

It needs nothing but the standard library.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import ContextError, ErrorIdentity, RemoteCause

if TYPE_CHECKING:
    from dlrl_core.trainer.progress import ProgressReport


class JobState(enum.StrEnum):
    """Where a job is. The value is the word of `dlrl status`."""

    SUBMITTED = "submitted"
    """The record is written; no Master has read it yet."""
    RESERVING = "reserving"
    """The Master waits for the cluster to grant the plan."""
    STARTING = "starting"
    """Workloads and trainer are being started, at first or again."""
    RUNNING = "running"
    """The trainer runs: its construction, `init` and `fit`."""
    STOPPING = "stopping"
    """Somebody asked to stop; processes are being ended."""
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """Nothing follows: no process of the job is left, and its name may be used again."""
        return not TRANSITIONS[self]


_GIVING_UP = frozenset({JobState.STOPPING, JobState.FAILED})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.SUBMITTED: _GIVING_UP | {JobState.RESERVING},
    JobState.RESERVING: _GIVING_UP | {JobState.STARTING},
    # A node lost while starting takes the job back to reserving.
    JobState.STARTING: _GIVING_UP | {JobState.RESERVING, JobState.RUNNING},
    # Failover takes a running job back: to starting, or to reserving when it needs another node.
    JobState.RUNNING: _GIVING_UP | {JobState.RESERVING, JobState.STARTING, JobState.FINISHED},
    # The trainer may have come to its end before the stop reached it.
    JobState.STOPPING: frozenset({JobState.STOPPED, JobState.FINISHED, JobState.FAILED}),
    JobState.FINISHED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.STOPPED: frozenset(),
}
"""What may follow each state. Staying in a state is no transition and always allowed."""


def check_transition(old: JobState, new: JobState) -> None:
    """Raises ContextError unless a job may go from the one state to the other."""
    if new == old or new in TRANSITIONS[old]:
        return
    if old.is_final:
        raise ContextError(f"the job is '{old}', which is final; it can't become '{new}'")
    allowed = ", ".join(f"'{state}'" for state in JobState if state in TRANSITIONS[old])
    raise ContextError(f"a job that is '{old}' can't become '{new}'; it may become {allowed}")


_LARGEST_JSON = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class TrainerResult:
    """What `fit` returned. The driver that waits gets it pickled; a record keeps JSON alone, which can't execute."""

    type_name: str
    json_text: str | None = None
    """None for a value that JSON does not give back as it was, such as a tuple or a tensor, or of over a megabyte."""
    pickled: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Any, pickled: bytes) -> TrainerResult:
        try:
            text = json.dumps(value) if _is_plain(value) else None
        except (ValueError, RecursionError):  # it contains itself
            text = None
        is_small = text is not None and len(text) <= _LARGEST_JSON
        return cls(type_name=type(value).__name__, json_text=text if is_small else None, pickled=pickled)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


@dataclass(frozen=True, kw_only=True)
class TrainerOutcome:
    """How the trainer ended."""

    is_success: bool
    result: TrainerResult | None = None
    why: str | None = None
    cause: RemoteCause | None = None
    failed_workload: str | None = None
    """The workload whose method raised; None if the trainer's own code did, or a process died."""
    is_death: bool = False
    """A workload's process is gone: no error of user code."""
    is_commit_lost: bool = False
    """There is no commit left that all ranks hold."""
    error_identity: ErrorIdentity | None = None
    """Of an error of user code."""
    incarnation: int = 0
    """Of the trainer's process."""
    progress: ProgressReport | None = None
    """Where the trainer was at its end; reports on their way may arrive too late to tell."""
