"""The committed state of one workload, as its process keeps it: in memory, on durable storage, and on its way there."""

from __future__ import annotations

import errno
import math
import resource
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from dlrl_core.errors import DlrlError
from dlrl_core.workload.captured_state import CapturedState
from dlrl_core.workload.state_keeper import (
    Commit,
    CommitOutcome,
    DurableStatus,
    HeldCommits,
    KeeperRequest,
    Neighbour,
    StateKeeper,
)
from dlrl_state.durable_state import DurableCopies, storage_at
from dlrl_state.durable_storage import within
from dlrl_state.neighbour_copies import NeighbourCopies, Source
from dlrl_state.node_room import want
from dlrl_state.run_memory import forget_run, run_folders
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.url_storage import check_url, is_url
from dlrl_state.version_folder import Version

_FORGET_S = 120.0
"""How long a job that has finished waits until its durable commits are removed."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


class NodeMemoryKeeper(StateKeeper):
    """The versions of one workload's state in the memory of its node, with copies elsewhere."""

    def __init__(self, request: KeeperRequest) -> None:
        self._request = request
        self._memory = StateMemory(
            run_id=request.run_id, workload=request.workload, role=request.role, cluster=request.cluster
        )
        place = f"{request.durable}/{request.workload}" if request.durable else None
        self._durable = DurableCopies(None if place is None else storage_at(place))
        self._copies = NeighbourCopies(self._memory, request)
        self._copy: _Copy | None = None

    @classmethod
    def forget_run(cls, run_id: str) -> None:
        forget_run(run_id)

    @classmethod
    def check_durable(cls, durable: str) -> None:
        if is_url(durable):
            check_url(durable)

    @classmethod
    def forget_durable(cls, durable: str) -> None:
        try:
            within(_FORGET_S, storage_at(durable).remove_all)
        except OSError as error:
            from dlrl_core.context import redact

            print(redact(f"dlrl: '{durable}' could not be removed: {error.strerror or error}"), flush=True)

    def begin(self, commit: Commit, keep: Collection[str], workload: Any, neighbour: Neighbour | None = None) -> None:
        self.wait()
        for id_ in keep:
            self.set_counted(id_)
        copy = _Copy(commit, None if neighbour is None else lambda: self.give(commit.id, keep, neighbour))
        if hasattr(workload, "capture_state"):
            captured: CapturedState = workload.capture_state()
            self._copy = copy
            copy.start(captured.size, lambda: self._memory.write(commit, keep, captured, copy.end))
        else:
            copy.do(lambda: self._memory.write_files(commit, keep, lambda part: workload.save_state(str(part))))
            self._copy = copy

    def wait(self) -> None:
        if (copy := self._copy) is not None and not copy.ended.is_set():
            copy.wait_began = min(copy.wait_began, time.perf_counter())
            copy.ended.wait()

    def outcome(self, id_: str) -> CommitOutcome:
        copy = self._copy
        if copy is None or copy.commit.id != id_:
            copy = _Copy(Commit(version=0, id=id_, step=0, progress={}))
            copy.error = "its process has begun no such commit"
            copy.settled.set()
        copy.settled.wait()
        return CommitOutcome(
            error=copy.error,
            size=copy.size,
            waited_s=copy.waited_s,
            interpreter_s=copy.interpreter_s,
            cpu_s=copy.cpu_s + self._copies.take_cpu_s(),
            durable=self._durable.status(),
            neighbour_error=copy.neighbour_error,
            pushed_out=self._memory.take_pushed(),
        )

    # ---- which versions there are

    def held(self) -> HeldCommits:
        durable = {id_: commit.to_json() for id_, commit in self._durable.held().items()}
        in_memory = _as_held(want(self._memory.held()), self._memory)
        return replace(in_memory, commits={**durable, **in_memory.commits})

    def set_counted(self, id_: str) -> None:
        self._memory.set_counted(id_)

    def damage(self, id_: str) -> str | None:
        """As the contract says. A damaged version is set aside."""
        try:
            version = self._on_node(id_)
        except OSError as error:
            self._durable.bar(id_)
            return f"commit {id_} could not be had from durable storage: {error.strerror or error}"
        if version is None:
            return f"there is no whole version of it in '{self._memory.place()}'"
        damage = version.damage()
        if damage is not None:
            version.set_aside()
        return damage

    def _on_node(self, id_: str) -> Version | None:
        """The version as files that can be mapped here, in memory or from durable storage. Raises OSError."""
        return self._memory.held().get(id_) or self._durable.bring(id_, self._memory)

    def load(self, id_: str, workload: Any) -> None:
        version = self._on_node(id_)
        if version is None:
            raise DlrlError(f"there is no whole version of commit {id_} in '{self._memory.place()}'")
        with self._memory.pinned(version):
            saved = saved_state(version.folder)
            if saved is not None:
                workload.restore_state(saved)
            else:
                workload.load_state(str(version.folder))

    # ---- durable storage

    def start_durable(self, id_: str, on_all: str | None) -> None:
        version = self._memory.held().get(id_)
        if version is None:
            self._durable.missed(f"there is no whole version of it in '{self._memory.place()}'")
            return
        self._memory.pin(id_)
        self._durable.start(version, lambda: self._memory.unpin(id_))
        threading.Thread(target=self._durable.prune, args=(on_all,), name="dlrl-prune", daemon=True).start()

    def make_durable(self, id_: str) -> None:
        version = self._memory.held()[id_]
        with self._memory.pinned(version):
            self._durable.copy(version)

    def durable_status(self) -> DurableStatus:
        return self._durable.status()

    def abandon_durable(self) -> None:
        self._durable.abandon()

    # ---- neighbours, and room

    def check_room(self, size: int) -> str | None:
        return self._memory.no_room(size)

    def held_for(self, workloads: Collection[str]) -> dict[str, HeldCommits]:
        runs = [run for run in run_folders(self._request.run_id) if run.is_dir()]
        here = {one.name for run in runs for one in run.iterdir()}  # of thousands of workloads, few are on a node
        memories = {name: self._copies.memory_of(name) for name in here.intersection(workloads)}
        return {name: _as_held(found, memory) for name, memory in memories.items() if (found := want(memory.held()))}

    def source_of(self, workload: str, id_: str) -> Source:
        return self._copies.source_of(workload, id_)

    def give(self, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        if id_ not in self._memory.held() and id_ in self._durable.held():
            return "it was gone back to from durable storage, and is in no memory; the next commit is copied"
        return self._copies.give(self._request.workload, id_, keep, neighbour)

    def fetch(self, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        return self._copies.fetch(self._request.workload, id_, keep, neighbour)

    def pull(self, workload: str, id_: str, keep: Collection[str], source: Any) -> float:
        return self._copies.pull(workload, id_, keep, source)


def _as_held(found: Mapping[str, Version], memory: StateMemory) -> HeldCommits:
    return HeldCommits(
        commits={id_: version.commit.to_json() for id_, version in found.items()},
        counted=frozenset(id_ for id_, version in found.items() if version.is_counted),
        place=memory.place(),
    )


class _Copy:
    """One commit on its way to memory, and then to the neighbour."""

    def __init__(self, commit: Commit, give: Callable[[], str | None] | None = None) -> None:
        self.commit = commit
        self._give = give
        self.neighbour_error: str | None = None
        self.size = 0
        self.error: str | None = None
        self.wait_began = math.inf
        """When the first call began to wait for it."""
        self.ended_at = math.inf
        self.cpu_s = 0.0
        self.interpreter_s = 0.0
        self.ended = threading.Event()
        """The state may change."""
        self.settled = threading.Event()
        """It is known what became of the commit on this rank."""

    def do(self, write: Callable[[], int]) -> None:
        """Write now. What the workload's own method raises is an error of that call; a full disk is not."""
        try:
            self.size = write()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.error = self._not_kept(error)
        self.end()
        threading.Thread(target=self._settle, name="dlrl-give", daemon=True).start()

    def start(self, size: int, write: Callable[[], float]) -> None:
        """Write in a thread."""
        self.size = size
        threading.Thread(target=self._run, args=(write,), name="dlrl-commit", daemon=True).start()

    def _run(self, write: Callable[[], float]) -> None:
        began = resource.getrusage(resource.RUSAGE_THREAD)
        try:
            self.cpu_s = write()
        except OSError as error:
            self.error = self._not_kept(error)
        except Exception as error:  # noqa: BLE001 - a buffer of an adapter; the trainer gets it with the outcome
            self.error = f"commit {self.commit.version} could not be copied: {type(error).__name__}: {error}"
        finally:
            took = resource.getrusage(resource.RUSAGE_THREAD)
            self.interpreter_s = took.ru_utime - began.ru_utime
            self.cpu_s += took.ru_stime - began.ru_stime  # to get memory from the kernel takes no interpreter
            self.end()
        self._settle()

    def _settle(self) -> None:
        try:
            if self.error is None and self._give is not None:
                self.neighbour_error = self._give()
        except Exception as error:  # noqa: BLE001 - whatever it was, the trainer waits for the outcome
            self.neighbour_error = f"{type(error).__name__}: {error}"
        finally:
            self.settled.set()

    @property
    def waited_s(self) -> float:
        return max(0.0, self.ended_at - self.wait_began) if self.wait_began < math.inf else 0.0

    def end(self) -> None:
        """What is captured is not needed any more."""
        if not self.ended.is_set():
            self.ended_at = time.perf_counter()
            self.ended.set()

    def _not_kept(self, error: OSError) -> str:
        return f"commit {self.commit.version} could not be kept in memory: {error}"
