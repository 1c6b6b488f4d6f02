"""What is persisted of a job: frozen records that survive JSON.

Free text in them is redacted on the way in. The spec is not: a restarted workload needs its real environment.
"""

from __future__ import annotations

import enum
import secrets
import time

from pydantic import BaseModel, ConfigDict, Field

from dlrl_core.context.job_state import JobState
from dlrl_core.context.process_report import WorkloadState
from dlrl_core.context.shown_text import ShownText
from dlrl_core.roles import RoleType
from dlrl_core.spec.survival import FailoverScope

SCHEMA = 3
"""Number of the record format. Raised with every new field: a Master must not drop what it can't read."""


def new_run_id() -> str:
    """An id for one run of a job name, sortable by time, such as '20250131-154500-9f3a1c'."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # what can't be read may be a secret
        ser_json_inf_nan="strings",  # a loss may be NaN, and must come back as NaN
    )

    record_schema: int = SCHEMA


class TrainerState(enum.StrEnum):
    """Where the trainer's process is in its life."""

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    """Its class is imported and can run."""
    RUNNING = "running"
    """The user's code runs: construction, `init` or `fit`."""
    DEAD = "dead"
    ENDED = "ended"


class TrainerRecord(_Record):
    """The trainer's process."""

    state: TrainerState = TrainerState.PENDING
    incarnation: int = 0
    actor_id: str | None = None
    node_id: str | None = None
    pid: int | None = None
    phase: str | None = None
    """What it is doing, in the trainer's own word, such as 'init' or 'fit'."""


class ProgressRecord(_Record):
    """How far training came, as of the last commit of the trainer."""

    step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = {}
    phase_seconds: dict[str, float] = {}
    """Where the time of the last step went."""
    commit_json: str | None = None
    """The last commit that the trainer told of."""
    updated_at: float = Field(default_factory=time.time)


class RestartRecord(_Record):
    """One restart: what had died, and how much was restarted for it."""

    at: float = Field(default_factory=time.time)
    scope: FailoverScope
    subject: str
    """The workload that had died, or 'trainer'."""
    node_id: str | None = None


class EndingRecord(_Record):
    """How the job ends, written before anything is ended for it: who comes after can only finish that."""

    state: JobState
    why: ShownText | None = None
    result: str | None = Field(default=None, repr=False)
    """What the trainer returned, pickled, in base64; None if it returned nothing, or too much to be kept here."""


class JobRecord(_Record):
    """One run of a job: what was asked, what was planned, where it stands. Times are epoch seconds."""

    name: str
    run_id: str = Field(default_factory=new_run_id)
    state: JobState = JobState.SUBMITTED
    state_since: float = Field(default_factory=time.time)
    spec_json: str = Field(repr=False)
    plan_json: str | None = Field(default=None, repr=False)
    plan_number: int = 0
    """How many plans this run has made; its reservations are named by it. 0: none yet."""
    waiting_for: ShownText | None = None
    """Which resources are missing, while the job waits for them."""
    store_url: str = Field(repr=False)
    address: str | None = None
    """Of the Ray cluster."""
    master_incarnation: int = 0
    """0 until a Master has read the record; each Master that takes it up raises it by one."""
    submitted_at: float = Field(default_factory=time.time)
    ended_at: float | None = None
    why: ShownText | None = None
    """The outcome in one sentence; of a failed job, its first cause."""
    ending: EndingRecord | None = None
    """Set once it is decided; `state` follows when nothing of the job is left."""
    trainer: TrainerRecord = TrainerRecord()
    progress: ProgressRecord = Field(default_factory=ProgressRecord)
    epoch: int = 0
    """How often the trainer had to go back to a commit."""
    restarts: tuple[RestartRecord, ...] = ()
    """The last ones: what budgets are counted from."""
    last_error: str | None = None
    """The last error of user code that led to a restart, and its step: should it come again, it is the code."""
    journal_start: int = 0
    """Journal events up to this number belong to earlier runs of the name."""


class WorkloadRecord(_Record):
    """One workload as the Master last decided or saw it."""

    name: str
    role: RoleType
    rank: int
    part: str | None = None
    incarnation: int = 0
    state: WorkloadState = WorkloadState.PENDING
    actor_id: str | None = None
    node_id: str | None = None
    pid: int | None = None
    device_ids: tuple[str, ...] = ()
    restarts: int = 0
    is_stateful: bool = False
    """Its class has save_state and load_state."""
    since: float = Field(default_factory=time.time)
    """When it came to its state."""
    detail: ShownText | None = None
    """Why it is in its state, in one sentence."""
