"""Every exception a user of dlrl can catch.

    DlrlError
    ├── SpecError                 what was asked can't be a job; lists every problem found
    ├── PluginError               a plugin is broken, clashes, or speaks another API version
    │   ├── UnknownFrameworkError     no adapter of that name
    │   └── FrameworkUnavailableError the adapter is there, its framework is not
    ├── PlanError                 the job does not fit the cluster
    ├── ClusterError              Ray can't be reached, started or asked
    │   └── ReservationError          the plan fits on paper, the cluster did not grant it in time
    ├── JobError
    │   ├── JobExistsError            a live job has this name
    │   ├── JobNotFoundError          no job has this name
    │   ├── JobFailedError            the job failed; `.cause` is the first cause
    │   ├── JobStoppedError           somebody stopped the job
    │   └── JobTimeoutError           the job was still running when the wait ended
    ├── WorkloadError             one workload; `.role`, `.rank`, `.method`
    │   ├── WorkloadStartError        its class could not be imported or constructed
    │   ├── WorkloadCallError         its method raised; `.cause` is what it raised
    │   └── WorkloadDiedError         its process is gone
    ├── StaleTermError            a call of a trainer that was replaced
    ├── ChaosNotAllowedError      a fault for a job that was not built with `.allow_chaos()`
    ├── CallTimeoutError          some ranks did not answer in time; `.missing`, `.results`
    ├── TrainerError              the trainer's class could not be imported, constructed or run
    ├── CommitLostError           there was a commit, and none is left that all ranks hold
    └── ContextError              the persisted record
        ├── SchemaError               written by a newer dlrl, or not readable as a record
        └── StoreError                the store refused
            ├── StoreConflictError        somebody else wrote to the record: this process no longer owns it
            └── StoreUnavailableError     the store can't be reached now; the same may work later

All of them survive pickling, so that they cross processes with their attributes.
"""

from __future__ import annotations

import pickle
import traceback as traceback_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LARGEST_PICKLE = 1024 * 1024
"""An exception that carries whole batches goes on as its text."""


def _rebuild(cls: type[DlrlError], args: tuple[Any, ...], state: dict[str, Any]) -> DlrlError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class DlrlError(Exception):
    """The root. Subclasses may have any constructor: unpickling never calls it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


@dataclass(frozen=True, kw_only=True)
class RemoteCause:
    """An exception of user code, made safe to carry through processes that can't import its class."""

    type_name: str
    message: str
    traceback: str
    pickled: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> RemoteCause:
        inner = getattr(error, "cause", None)
        if isinstance(inner, DlrlError):  # Ray's wrapper around one of ours
            return cls.of(inner)
        if isinstance(inner, RemoteCause) and not isinstance(error, PluginError):  # whose plugin it is must stay known
            return inner
        text = "".join(traceback_module.format_exception(error))
        return cls(
            type_name=type(error).__name__,
            message=str(error),
            traceback=text,
            pickled=_pickled_or_none(error),
        )

    def load(self) -> BaseException | None:
        """The original exception where this process can unpickle it, else None."""
        if self.pickled is None:
            return None
        try:
            error = pickle.loads(self.pickled)
        except Exception:  # noqa: BLE001 - a class of user code: anything may happen, and the text is enough
            return None
        return error if isinstance(error, BaseException) else None

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


@dataclass(frozen=True, kw_only=True)
class ErrorIdentity:
    """What makes two errors of user code the same one: the exception's type and where it was raised.

    The rank is no part of it: which of several ranks is heard first is chance.
    """

    type_name: str
    role: str
    """The role whose method raised, such as 'actor', or 'trainer'."""
    method: str
    """That method; for the trainer, the phase: 'construct', 'init' or 'fit'."""


def _pickled_or_none(error: BaseException) -> bytes | None:
    """Bytes that are known to load again, many exceptions pickle and then refuse to unpickle; and not too many."""
    try:
        data = pickle.dumps(error)
        if len(data) > _LARGEST_PICKLE:
            return None
        pickle.loads(data)
    except Exception:  # noqa: BLE001 - user classes may fail in any way
        return None
    return data


class SpecError(DlrlError):
    """What was asked can't be a job. `problems` lists all that was found, not just the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} problems in the job:{lines}")


class PluginError(DlrlError):
    """A plugin that was asked for is broken, clashes with another, or speaks another API version."""

    cause: RemoteCause | None = None
    """What the plugin raised, if it did."""


class UnknownFrameworkError(PluginError):
    """No adapter of that name is registered."""


class FrameworkUnavailableError(PluginError):
    """The adapter is registered; the framework itself is missing or of an unsupported version."""

    def __init__(self, seen: str, *, run: str | None = None) -> None:
        """`seen` is what was found; `run` is the command that installs what is needed, if one does."""
        super().__init__(f"{seen}; run: {run}" if run else seen)
        self.seen = seen
        self.run = run


class PlanError(DlrlError):
    """The job does not fit the cluster."""


class ClusterError(DlrlError):
    """Ray can't be reached, started or asked."""


class ReservationError(ClusterError):
    """The plan fits on paper, but the cluster did not grant it in time."""


class JobError(DlrlError):
    """About one job, named in `job`."""

    def __init__(self, job: str, message: str) -> None:
        self.job = job
        super().__init__(message)


class JobExistsError(JobError):
    """A live job has this name."""


class JobNotFoundError(JobError):
    """No job has this name."""


class JobFailedError(JobError):
    """The job failed; the message is the first cause in one sentence, `cause` what user code raised."""

    def __init__(self, job: str, message: str, cause: RemoteCause | None = None) -> None:
        self.cause = cause
        super().__init__(job, message)


class JobStoppedError(JobError):
    """Somebody stopped the job before it finished."""


class JobTimeoutError(JobError):
    """The job was still running when the wait ended. The job goes on."""


class WorkloadError(DlrlError):
    """About one workload: `role` (its lower-case name), `rank`, `method`, and what user code raised."""

    def __init__(
        self,
        message: str,
        *,
        role: str,
        rank: int,
        method: str | None = None,
        cause: RemoteCause | None = None,
    ) -> None:
        self.role = role
        self.rank = rank
        self.method = method
        self.cause = cause
        text = f"{message}\n\nremote traceback of '{role}-{rank}':\n{cause.traceback}" if cause else message
        self.summary = message
        super().__init__(text)


class WorkloadStartError(WorkloadError):
    """The class of a workload could not be imported or constructed."""


class WorkloadCallError(WorkloadError):
    """A method of a workload raised."""


class WorkloadDiedError(WorkloadError):
    """The process of a workload is gone."""


class StaleTermError(DlrlError):
    """A workload refused a call: the trainer that made it was replaced."""


class ChaosNotAllowedError(DlrlError):
    """A fault was requested for a job that was not built with `.allow_chaos()`."""


class CallTimeoutError(DlrlError):
    """Some ranks did not answer in time. `results` has what came, by rank; `missing` the other ranks."""

    def __init__(
        self, *, role: str, method: str, timeout_s: float, missing: Sequence[int], results: Mapping[int, Any]
    ) -> None:
        self.role = role
        self.method = method
        self.timeout_s = timeout_s
        self.missing = tuple(missing)
        self.results = dict(results)
        ranks = ", ".join(str(rank) for rank in self.missing)
        super().__init__(
            f"role '{role}' did not answer '{method}' within {timeout_s:g} s on rank {ranks}; "
            f"{len(self.results)} of {len(self.results) + len(self.missing)} results came and are in .results"
        )


class TrainerError(DlrlError):
    """The trainer's class could not be imported, constructed or run; `cause` is what user code raised."""

    def __init__(self, message: str, cause: RemoteCause | None = None) -> None:
        self.cause = cause
        self.summary = message
        super().__init__(f"{message}\n\nremote traceback of the trainer:\n{cause.traceback}" if cause else message)


class CommitLostError(DlrlError):
    """There was a commit, and none is left that all ranks hold. Training does not begin again by itself."""


class ContextError(DlrlError):
    """About the persisted record of a job."""


class SchemaError(ContextError):
    """The record was written by a newer dlrl, or can't be read as one."""


class StoreError(ContextError):
    """The store refused; mostly because somebody else wrote to the record."""


class StoreConflictError(StoreError):
    """Somebody else wrote to the record, or it is gone: this process no longer owns it."""


class StoreUnavailableError(StoreError):
    """The store can't be reached, or can't write, at the moment. The same may work later.

    A commit that raised it may have been written all the same; say it again with the same id.
    """
