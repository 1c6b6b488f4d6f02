"""JobState: where a job is, and which state may follow which."""

from __future__ import annotations

import enum

from dlrl_core.errors import ContextError


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
