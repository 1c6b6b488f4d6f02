"""Incident: what went wrong in a job, what was concluded, decided, restarted and lost.

The Master makes it when it decides, and completes it when all processes are ready again. `dlrl why`, `dlrl status`,
the journal and the error of a failed job print what is in it; none of them derives it a second time.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence

from pydantic import Field

from dlrl_core.context.record_model import PersistedRecord
from dlrl_core.context.redaction import RedactedText
from dlrl_core.errors import ErrorIdentity
from dlrl_core.spec.role_values import FailoverScope

_REMEMBERED = 200
"""Incidents that are kept in the record: budgets are counted from them."""


class FindingKind(enum.StrEnum):
    """What is wrong."""

    PROCESS_DIED = "process_died"
    HUNG = "hung"
    """The process lives; its call takes too long, or it sends no reports."""
    USER_ERROR = "user_error"
    CALL_LOST = "call_lost"
    """A call that must not be repeated was interrupted."""


class Reason(enum.StrEnum):
    """Why a scope was chosen."""

    DECLARED = "declared"
    """The role declares this scope."""
    NO_COMMIT = "no_commit"
    """The scope that the role declares needs a commit, and there is none."""
    FIRST_ERROR = "first_error"
    """User code raised this error for the first time at this step."""
    ERROR_BEFORE_COMMIT = "error_before_commit"
    SAME_ERROR_AGAIN = "same_error_again"
    BUDGET_SPENT = "budget_spent"


class Loss(enum.StrEnum):
    """Which steps a restart makes the trainer repeat."""

    NOTHING = "nothing"
    UNCOMMITTED = "uncommitted"
    """The steps after the last commit."""
    NOT_DURABLE = "not durable"
    """The steps after the last durable commit: commits in the memory of a lost node are lost with it."""
    EVERYTHING = "everything"
    """Nothing was committed, so training began again."""


class Incident(PersistedRecord):
    """One finding, the decision about it, and the recovery that followed."""

    number: int
    """Counted from 1 through the whole run."""
    at: float = Field(default_factory=time.time)
    kind: FindingKind
    subject: str
    """The name of a workload, or 'trainer'."""
    message: RedactedText
    """What was found, in one sentence."""
    step: int | None = None
    """The step that ran, counted from 1."""
    error: ErrorIdentity | None = None
    """Of user code; two incidents with the same identity at the same step have the same cause."""
    chaos: RedactedText | None = None
    """The fault that was injected on purpose, where one was."""
    stacks: RedactedText | None = Field(default=None, repr=False)
    """Of the threads of a process that hung."""
    scope: FailoverScope
    reason: Reason
    explanation: RedactedText
    """The reason in one sentence."""
    restarts: tuple[str, ...] = ()
    """The processes that are restarted, by name."""
    is_rollback: bool = False
    """Whether the trainer enters `fit` again, at the first step that is not committed."""
    node_id: str | None = None
    """The node on which a process died, if the death counts against it."""
    loss: Loss = Loss.NOTHING
    ready_at: float | None = None
    """When all restarted processes were ready; None before that, and if the job ended first."""

    @property
    def seconds(self) -> float | None:
        """From the decision until all was ready again."""
        return None if self.ready_at is None else max(0.0, self.ready_at - self.at)


def with_incident(incidents: Sequence[Incident], new: Incident) -> tuple[Incident, ...]:
    """The incidents with a new one; old ones are dropped, but never the last rollback, which counts as the epoch."""
    kept = (*incidents, new)[-_REMEMBERED:]
    if epoch_of(kept) or not (rollback := last_rollback(incidents)):
        return kept
    return (rollback, *kept[1:])


def last_rollback(incidents: Sequence[Incident]) -> Incident | None:
    return next((one for one in reversed(incidents) if one.is_rollback), None)


def epoch_of(incidents: Sequence[Incident]) -> int:
    """The number of the last incident that sent the trainer back to a commit; 0 if none did."""
    rollback = last_rollback(incidents)
    return rollback.number if rollback else 0
