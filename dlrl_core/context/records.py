"""What is persisted of a job: frozen records that survive JSON.

Free text in them is redacted on the way in. The spec is not: a restarted workload needs its real environment.

An *incident* is what went wrong, what was concluded, decided, restarted and lost. The Master writes it when it decides,
and completes it when all processes are ready again. Everything that shows it prints it, and derives nothing again.
"""

from __future__ import annotations

import enum
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.context.job_state import JobState, TrainerResult
from dlrl_core.context.process_report import WorkloadState
from dlrl_core.context.redaction import RedactedText, redacted_text
from dlrl_core.context.store import check_schema
from dlrl_core.errors import ContextError, ErrorIdentity, RemoteCause, SchemaError
from dlrl_core.roles import RoleType
from dlrl_core.spec.frozen import validation_problems
from dlrl_core.spec.role_values import FailoverScope

SCHEMA = 7
"""Of the record format; raised with every new field, because a Master must not drop what it can't read."""
_REMEMBERED = 200
"""Incidents that are kept in the record: budgets are counted from them."""


class PersistedRecord(BaseModel):
    """A frozen value that survives JSON and carries the number of its format."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # what can't be read may be a secret
        ser_json_inf_nan="strings",  # a loss may be NaN, and must come back as NaN
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    record_schema: int = SCHEMA


class FindingKind(enum.StrEnum):
    """What is wrong."""

    PROCESS_DIED = "process_died"
    HUNG = "hung"
    """The process lives; its call takes too long, or it sends no reports."""
    USER_ERROR = "user_error"
    START_FAILED = "start_failed"
    MASTER_FAILED = "master_failed"
    """The Master met an error that it does not know; its process is restarted."""
    CALL_LOST = "call_lost"
    """A call that must not be repeated was interrupted."""
    COMMIT_LOST = "commit_lost"
    """There was a commit, and none is left that all ranks hold."""


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
    COMMIT_LOST = "commit_lost"
    """There is no state left to go on from."""


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
    steady_at: float = Field(default_factory=time.time)
    """By the run's steady clock, which no step of the wall clock moves: budgets and durations are counted by it."""
    kind: FindingKind
    subject: str
    """The name of a workload, 'trainer' or 'master'."""
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


def steady_now(incidents: Sequence[Incident]) -> float:
    """The run's steady clock for a process that begins to follow it: no step back of the wall clock moves it back."""
    return incidents[-1].steady_at + max(0.0, time.time() - incidents[-1].at) if incidents else time.time()


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
    commits: CommitsReport | None = None
    updated_at: float = Field(default_factory=time.time)


def _without_pickle(value: Any) -> Any:
    """A mapping was read from a store: what is pickled in it would execute, so it is dropped."""
    return {**value, "pickled": None} if isinstance(value, Mapping) else value


class JobEnding(PersistedRecord):
    """How the job ends. Written before any process is ended; a Master that comes later completes the same ending."""

    state: JobState
    why: RedactedText | None = None
    cause: Annotated[RemoteCause | None, BeforeValidator(_without_pickle)] = Field(default=None, repr=False)
    """The exception of user code behind a failure."""
    result: Annotated[TrainerResult | None, BeforeValidator(_without_pickle)] = Field(default=None, repr=False)

    def kept(self) -> JobEnding:
        """The part that goes to the store: nothing pickled, and of the cause its redacted text."""
        cause = self.cause and replace(
            self.cause,
            message=redacted_text(self.cause.message),
            traceback=redacted_text(self.cause.traceback),
            pickled=None,
        )
        return self.model_copy(update={"result": self.result and replace(self.result, pickled=None), "cause": cause})


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
    started: int = 0
    old_process: tuple[int, int] | None = None
    """Number and start of the process before it: the next one on the same node waits until that is gone."""
    device_ids: tuple[str, ...] = ()
    is_stateful: bool = False
    """Its class has save_state and load_state."""
    since: float = Field(default_factory=time.time)
    """When it came to its state."""
    detail: RedactedText | None = None
    """Why it is in its state, in one sentence."""


M = TypeVar("M", bound=BaseModel)

_TEXTS = {"spec": "spec_json", "plan": "plan_json"}
_MODELS: dict[str, type[BaseModel]] = {"trainer": TrainerRecord, "progress": ProgressRecord}
_OWN_DOCUMENTS = {*_TEXTS.values(), *_MODELS, "incidents"}
_HEADER = [field for field in JobRecord.model_fields if field not in _OWN_DOCUMENTS]
_WORKLOAD = "workload/"
_INCIDENT = "incident/"
_GONE = {"job": ("epoch", "restarts", "last_error"), "workload": ("restarts", "old_pid")}
"""Fields of older records: what is counted from the incidents now, and a number without the start of its process."""


def workload_key(name: str) -> str:
    return f"{_WORKLOAD}{name}"


def record_text(record: BaseModel) -> str:
    return record.model_dump_json()


def job_documents(new: JobRecord, *, old: JobRecord | None = None) -> dict[str, str | None]:
    """The documents of a job's record that differ from the old one's; None for one that is no more."""
    documents: dict[str, str | None] = {}
    if _differs(new, old, _HEADER):
        documents["job"] = new.model_dump_json(exclude=_OWN_DOCUMENTS)
    for key in _MODELS:
        if _differs(new, old, [key]):
            documents[key] = record_text(getattr(new, key))
    for key, field in _TEXTS.items():
        if _differs(new, old, [field]):
            documents[key] = getattr(new, field)
            if documents[key] is not None and not _is_json(documents[key]):
                raise ContextError(f"{field} of job '{new.name}' is not JSON; give what to_json() returns")
    return {**documents, **_incident_documents(new.incidents, old.incidents if old else ())}


def _incident_documents(new: Sequence[Incident], old: Sequence[Incident]) -> dict[str, str | None]:
    """Those that are new or were completed; None for one that is no longer kept."""
    if new is old:
        return {}
    before, now = ({one.number: one for one in incidents} for incidents in (old, new))
    found: dict[str, str | None] = {f"{_INCIDENT}{number}": None for number in before.keys() - now.keys()}
    found |= {f"{_INCIDENT}{number}": record_text(one) for number, one in now.items() if before.get(number) != one}
    return found


def read_job(job: str, documents: Mapping[str, str]) -> JobRecord:
    """The job's record. Raises SchemaError, which names the document at fault."""
    header = _plain(job, "job", documents)
    parts: dict[str, Any] = {
        key: _validated(model, job, key, _plain(job, key, documents)) for key, model in _MODELS.items()
    }
    texts = {field: documents.get(key) for key, field in _TEXTS.items()}
    for key, field in _TEXTS.items():
        if (text := texts[field]) is not None and not _is_json(text):
            raise _unreadable(job, key, ["not JSON"])
    keys = sorted((key for key in documents if key.startswith(_INCIDENT)), key=lambda key: int(key.rpartition("/")[2]))
    incidents = [_validated(Incident, job, key, _plain(job, key, documents)) for key in keys]
    return _validated(JobRecord, job, "job", {**header, **parts, **texts, "incidents": incidents})


def read_workloads(job: str, documents: Mapping[str, str]) -> dict[str, WorkloadRecord]:
    """All workloads by name, by role and rank. Raises SchemaError, which names the document at fault."""
    keys = (key for key in documents if key.startswith(_WORKLOAD))
    return in_order(_validated(WorkloadRecord, job, key, _plain(job, key, documents)) for key in keys)


def in_order(records: Iterable[WorkloadRecord]) -> dict[str, WorkloadRecord]:
    return {record.name: record for record in sorted(records, key=lambda one: (one.role, one.rank, one.name))}


def _differs(new: JobRecord, old: JobRecord | None, fields: list[str]) -> bool:
    return old is None or any(getattr(new, field) != getattr(old, field) for field in fields)


def _plain(job: str, key: str, documents: Mapping[str, str]) -> dict[str, Any]:
    """A document as a mapping, its schema known to be ours."""
    if key not in documents:
        raise SchemaError(f"job '{job}' has no document '{key}' in the store; its record can't be read")
    try:
        plain = json.loads(documents[key])
    except ValueError:
        raise _unreadable(job, key, ["not JSON"]) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("record_schema"), int):
        raise _unreadable(job, key, ["no record_schema"])
    check_schema(plain["record_schema"], SCHEMA, f"document '{key}' of job '{job}'")
    return plain if plain["record_schema"] == SCHEMA else _of_today(key, plain)


def _of_today(key: str, plain: dict[str, Any]) -> dict[str, Any]:
    """A document of an older schema as one of today's: what is written next has today's fields."""
    gone = _GONE.get(key.partition("/")[0], ())
    kept = {name: value for name, value in plain.items() if name not in gone}
    if key == "job" and kept.get("ending"):
        kept["ending"] = {**kept["ending"], "result": None}  # pickled, up to schema 5
    if key == "trainer" and kept.get("state") in ("ready", "dead"):
        kept["state"] = TrainerState.STARTING
    return {**kept, "record_schema": SCHEMA}


def _validated(model: type[M], job: str, key: str, plain: dict[str, Any]) -> M:
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _unreadable(job, key, validation_problems(error)) from error


def _unreadable(job: str, key: str, problems: list[str]) -> SchemaError:
    return SchemaError(f"document '{key}' of job '{job}' can't be read as a record: {'; '.join(problems)}")


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True
