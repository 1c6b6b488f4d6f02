"""StateKeeper: what keeps the committed state of one workload. The contract between its process and a plugin.

A keeper is chosen by name (`commits(keeper=...)`) through the hook `dlrl_state_keepers`. It knows nothing of steps or
of other ranks: the trainer decides which commits count, and when one is begun, copied or restored.
"""

from __future__ import annotations

import abc
import json
import os
import platform
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, cast


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of the trainer; every rank writes it beside its state."""

    version: int
    id: str
    """Of this attempt: an attempt at the same version that failed has another id."""
    step: int
    """The trainer's own index of the step, from 0."""
    progress: dict[str, Any]
    count: int = 0
    """How many commits led here, this one included; versions of attempts that failed are left out."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Commit:
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True)
class DurableStatus:
    """The copies of one rank on durable storage."""

    commits: frozenset[tuple[int, str]] = frozenset()
    """Version and id of each."""
    copying: str | None = None
    """The id of the commit that is being copied."""
    still_s: float = 0.0
    """How long no byte of it was written."""
    error: str | None = None
    """Why the last copy failed; None after one that succeeded."""


@dataclass(frozen=True, kw_only=True)
class CommitOutcome:
    """What became of a commit on one rank."""

    error: str | None
    """Why this rank does not hold it; None if it does."""
    size: int
    """In bytes."""
    waited_s: float
    """How long calls of this rank waited for the copy."""
    cpu_s: float
    """Processor time of the copy, for which no call had to wait."""
    durable: DurableStatus
    interpreter_s: float = 0.0
    """Processor time of Python code besides, during which no call of this process ran."""
    neighbour_error: str | None = None
    """Why the neighbour that was asked to hold a copy does not; None if it does, or none was asked."""
    pushed_out: frozenset[str] = frozenset()
    """Workloads of other nodes whose copies had to make room for this rank on its node."""
    machine: str = field(default_factory=platform.node)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HeldCommits:
    """The commits whose state one rank can load."""

    commits: dict[str, str]
    """As JSON, by id."""
    counted: frozenset[str]
    """Ids of those that all ranks are known to have held."""
    place: str
    """Where they lie, for messages."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A process on another node that is asked to hold a copy of each commit."""

    name: str
    ray_actor: Any


@dataclass(frozen=True, kw_only=True)
class KeeperRequest:
    """What a keeper is opened with."""

    run_id: str
    workload: str
    role: str = ""
    durable: str | None = None
    """The folder or URL of the run on durable storage; None if there is none."""
    cluster: str = ""
    """The address of the cluster's GCS."""


class StateKeeper(abc.ABC):
    """The committed versions of one workload's state. Made in its process; its methods are called in several threads.

    An error that a user can mend is raised as DlrlError. `begin` and `load` may also raise what the workload's own
    methods raise.
    """

    @abc.abstractmethod
    def __init__(self, request: KeeperRequest) -> None: ...

    @classmethod
    @abc.abstractmethod
    def forget_run(cls, run_id: str) -> None:
        """Remove what the run has in the memory of this machine. Called on each of them when the job is over."""

    @classmethod
    @abc.abstractmethod
    def check_durable(cls, durable: str) -> None:
        """Raise DlrlError if durable storage of this kind can't be used here. Called before a job starts."""

    @classmethod
    @abc.abstractmethod
    def forget_durable(cls, durable: str) -> None:
        """Remove what the run has on durable storage. Called once, when the job has finished."""

    # ---- a commit, from its beginning until it counts

    @abc.abstractmethod
    def begin(self, commit: Commit, keep: Collection[str], workload: Any, neighbour: Neighbour | None = None) -> None:
        """Take the state of the workload for this commit. What is captured is copied after this returns.

        Commits that are not to be kept may be written over. A copy goes to the neighbour, too.
        """

    @abc.abstractmethod
    def wait(self) -> None:
        """Return when the captured memory may change: when the copy of the last commit was made, or has failed."""

    @abc.abstractmethod
    def outcome(self, id_: str) -> CommitOutcome:
        """Wait until this commit is held here, and by the neighbour if there is one, or has failed."""

    @abc.abstractmethod
    def set_counted(self, id_: str) -> None:
        """All ranks hold this commit."""

    # ---- going back

    @abc.abstractmethod
    def held(self) -> HeldCommits:
        """The commits that can be loaded on this node, or from durable storage."""

    @abc.abstractmethod
    def damage(self, id_: str) -> str | None:
        """Why the state of this commit can't be loaded, after a look at every byte; None if it can."""

    @abc.abstractmethod
    def load(self, id_: str, workload: Any) -> None:
        """Bring the workload back to the state of this commit."""

    # ---- durable storage

    @abc.abstractmethod
    def start_durable(self, id_: str, on_all: str | None) -> None:
        """Copy this commit to durable storage in the background; `on_all` is the newest that every rank has there."""

    @abc.abstractmethod
    def make_durable(self, id_: str) -> None:
        """Copy this commit to durable storage; returns when it is there. Raises DlrlError."""

    @abc.abstractmethod
    def durable_status(self) -> DurableStatus: ...

    @abc.abstractmethod
    def abandon_durable(self) -> None:
        """Give up a copy to durable storage that stands still."""

    # ---- for other nodes, and for room

    @abc.abstractmethod
    def check_room(self, size: int) -> str | None:
        """Why two versions of a state of that size have no room on this node, in one sentence; None if they have."""

    @abc.abstractmethod
    def held_for(self, workloads: Collection[str]) -> dict[str, HeldCommits]:
        """The commits of these workloads in the memory of this node."""

    @abc.abstractmethod
    def source_of(self, workload: str, id_: str) -> Any:
        """Where `pull` gets a commit of that workload from this process; any value that can be pickled."""

    @abc.abstractmethod
    def give(self, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        """Have the neighbour pull a commit of this workload; returns why it could not, in one sentence."""

    @abc.abstractmethod
    def fetch(self, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        """Pull a commit of this workload from a process that holds it; returns why that failed, in one sentence."""

    @abc.abstractmethod
    def pull(self, workload: str, id_: str, keep: Collection[str], source: Any) -> float:
        """Copy a commit of that workload from another process into the memory of this node. Raises DlrlError.

        Returns the processor time that this took.
        """


def keeper_class(path: str) -> type[StateKeeper]:
    """The keeper behind an import path, "module:class"."""
    module, _, name = path.partition(":")
    found: type[StateKeeper] = getattr(import_module(module), name)
    return found


def late_keeper(path: str, request: KeeperRequest) -> StateKeeper:
    """A keeper that is imported and made when it is first needed: a workload without state may never need it."""
    return cast(StateKeeper, _LateKeeper(path, request))


class _LateKeeper:
    def __init__(self, path: str, request: KeeperRequest) -> None:
        self._path = path
        self._request = request
        self._guard = threading.Lock()
        self._made: StateKeeper | None = None

    def wait(self) -> None:
        """Called before every method of a workload; before the keeper is made, no copy can have begun."""
        if self._made is not None:
            self._made.wait()

    def __getattr__(self, name: str) -> Any:
        with self._guard:
            if self._made is None:
                self._made = keeper_class(self._path)(self._request)
        return getattr(self._made, name)
