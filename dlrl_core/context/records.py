"""What is persisted of a job: frozen records that survive JSON.

Free text in them is redacted on the way in. The spec is not: a restarted workload needs its real environment.
"""

from __future__ import annotations

import enum
import time
import uuid
from dataclasses import replace

from pydantic import Field

from dlrl_core.context.incidents import Incident, epoch_of
from dlrl_core.context.job_state import JobState
from dlrl_core.context.process_report import WorkloadState
from dlrl_core.context.record_model import PersistedRecord
from dlrl_core.context.redaction import RedactedText, redact
from dlrl_core.errors import RemoteCause
from dlrl_core.roles import RoleType

_LARGEST_RESULT = 1024 * 1024
"""A larger result is in memory only: it is lost if the Master dies before the driver has it, and the driver says so."""


class TrainerState(enum.StrEnum):
    """Where the trainer's process is in its life."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    """The user's code runs: construction, `init` or `fit`."""
    ENDED = "ended"


class TrainerRecord(PersistedRecord):
    """The trainer's process."""

    state: TrainerState = TrainerState.PENDING
    incarnation: int = 0
    actor_id: str | None = None
    node_id: str | None = None
    pid: int | None = None
    phase: str | None = None
    """What it is doing, in the trainer's own word, such as 'init' or 'fit'."""


class ProgressRecord(PersistedRecord):
    """How far training came, as of the last commit of the trainer."""

    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    phase_seconds: dict[str, float] = Field(default_factory=dict)
    """Where the time of the last step went."""
    commit_json: str | None = None
    """The last commit that the trainer told of."""
    updated_at: float = Field(default_factory=time.time)


class JobEnding(PersistedRecord):
    """How the job ends. Written before any process is ended; a Master that comes later completes the same ending."""

    state: JobState
    why: RedactedText | None = None
    cause: RemoteCause | None = Field(default=None, repr=False)
    """The exception of user code behind a failure."""
    result: bytes | None = Field(default=None, repr=False)
    """What the trainer returned, pickled; only the driver opens it."""

    def kept(self) -> JobEnding:
        """The part that goes to the store: no result above a megabyte, and of the cause its redacted text."""
        is_small = self.result is not None and len(self.result) <= _LARGEST_RESULT
        cause = self.cause and replace(
            self.cause, message=redact(self.cause.message), traceback=redact(self.cause.traceback), pickled=None
        )
        return self.model_copy(update={"result": self.result if is_small else None, "cause": cause})


class JobRecord(PersistedRecord):
    """One run of a job: what was asked, what was planned, where it stands. Times are epoch seconds."""

    name: str
    run_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    state: JobState = JobState.SUBMITTED
    state_since: float = Field(default_factory=time.time)
    spec_json: str = Field(repr=False)
    plan_json: str | None = Field(default=None, repr=False)
    plan_number: int = 0
    """How many plans this run has made; its reservations are named by it. 0: none yet."""
    waiting_for: RedactedText | None = None
    """Which resources are missing, while the job waits for them."""
    store_url: str = Field(repr=False)
    address: str | None = None
    """Of the Ray cluster."""
    master_incarnation: int = 0
    """0 until a Master has read the record; each Master that takes it up raises it by one."""
    submitted_at: float = Field(default_factory=time.time)
    ended_at: float | None = None
    why: RedactedText | None = None
    """The outcome in one sentence; of a failed job, its first cause."""
    ending: JobEnding | None = None
    """Set once it is decided; `state` follows when no process of the job is left."""
    trainer: TrainerRecord = TrainerRecord()
    progress: ProgressRecord = Field(default_factory=ProgressRecord)
    incidents: tuple[Incident, ...] = ()
    """The last ones, oldest first."""
    journal_start: int = 0
    """Journal events up to this number belong to earlier runs of the name."""

    @property
    def epoch(self) -> int:
        """Changes whenever the trainer has to go back to a commit."""
        return epoch_of(self.incidents)


class WorkloadRecord(PersistedRecord):
    """One workload as the Master last decided or saw it."""

    name: str
    role: RoleType
    rank: int
    part: str | None = None
    incarnation: int = 0
    """How often its process was replaced."""
    state: WorkloadState = WorkloadState.PENDING
    actor_id: str | None = None
    node_id: str | None = None
    pid: int | None = None
    device_ids: tuple[str, ...] = ()
    is_stateful: bool = False
    """Its class has save_state and load_state."""
    since: float = Field(default_factory=time.time)
    """When it came to its state."""
    detail: RedactedText | None = None
    """Why it is in its state, in one sentence."""
