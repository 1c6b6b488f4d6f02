"""Copies of a rank's versions in the memory of another node, and copies of other ranks' versions in the memory here.

A copy lies where the version would lie if its workload ran on that machine: a rank that is restarted there finds it as
its own. One that is restarted on a third node fetches it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from dlrl_core.errors import DlrlError
from dlrl_core.workload.state_keeper import Commit, KeeperRequest, Neighbour
from dlrl_state.node_room import want
from dlrl_state.state_memory import StateMemory
from dlrl_state.transfer import Address, FileServer, connected
from dlrl_state.version_folder import Piece, Version

_RANGE = 32 * 2**20
_LANES = 2
_LOOK_S = 1.0
_STILL_S = 60.0
"""A neighbour that asked for nothing for so long is given up."""
_QUEUED_S = 600.0
"""The same for one that has not begun: other ranks' copies may come first."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A version in another process, and where to ask for its bytes."""

    address: Address
    commit: str
    """As JSON."""
    pieces: tuple[Piece, ...]


class NeighbourCopies:
    """What one process gives to and holds for the processes of other nodes."""

    def __init__(self, memory: StateMemory, request: KeeperRequest) -> None:
        self._request = request
        self._memories = {request.workload: memory}
        self._versions: dict[tuple[str, str], Version] = {}
        """Those that are sent, by workload and id."""
        self._server: FileServer | None = None
        self.cpu_s = 0.0
        """The processor time of copies that were given, on both sides. As nodes form a ring, this one spends it."""
        self._guard = threading.Lock()

    def memory_of(self, workload: str) -> StateMemory:
        """Where versions of that workload lie on this machine."""
        with self._guard:
            if workload not in self._memories:
                self._memories[workload] = StateMemory(
                    run_id=self._request.run_id, workload=workload, cluster=self._request.cluster, is_for_other=True
                )
            return self._memories[workload]

    # ---- sending

    def source_of(self, workload: str, id_: str) -> Source:
        """Raises DlrlError if there is no such version in the memory of this machine."""
        memory = self.memory_of(workload)
        version = memory.held().get(id_)
        if version is None or not want({id_: version}):
            raise DlrlError(f"there is no whole version of it in '{memory.place()}'")
        with self._guard:
            self._versions = {key: one for key, one in self._versions.items() if key[0] != workload}
            self._versions[workload, id_] = version
            if self._server is None:
                self._server = FileServer(ray.util.get_node_ip_address(), self._file)
        return Source(address=self._server.address, commit=version.commit.to_json(), pieces=version.pieces)

    def _file(self, what: Any) -> Path:
        workload, id_, file = what
        version: Version = self._versions[workload, id_]
        if all(piece.file != file for piece in version.pieces):
            raise FileNotFoundError(file)
        return version.folder / str(file)

    def give(self, workload: str, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        """Have the neighbour pull a version; returns why it could not, in one sentence."""
        try:
            source = self.source_of(workload, id_)
            self.cpu_s += self._await(neighbour.ray_actor.pull.remote(workload, id_, list(keep), source))
        except (DlrlError, RayError, OSError) as error:
            return f"'{neighbour.name}' could not copy it: {_reason(error)}"
        return None

    def _await(self, pulled: Any) -> float:
        """Wait for a neighbour that moves; returns the processor time on both sides."""
        assert self._server is not None
        began, sent_s = time.monotonic(), self._server.meter.cpu_s
        while not ray.wait([pulled], timeout=_LOOK_S)[0]:
            moved_at = self._server.meter.moved_at
            still_s = time.monotonic() - max(began, moved_at)
            if still_s > (_STILL_S if moved_at > began else _QUEUED_S):
                raise DlrlError(f"it asked for nothing for {still_s:.0f} s")
        received_s: float = ray.get(pulled)
        return received_s + self._server.meter.cpu_s - sent_s

    def take_cpu_s(self) -> float:
        """The processor time since this was last asked for."""
        taken, self.cpu_s = self.cpu_s, 0.0
        return taken

    # ---- receiving

    def fetch(self, workload: str, id_: str, keep: Collection[str], neighbour: Neighbour) -> str | None:
        """Pull a version from a process that has it; returns why that failed, in one sentence."""
        try:
            source = ray.get(neighbour.ray_actor.keeper.remote("source_of", workload, id_), timeout=_STILL_S)
            self._receive(workload, id_, keep, source)
        except (DlrlError, RayError, OSError) as error:
            return f"it could not be fetched from '{neighbour.name}': {_reason(error)}"
        return None

    def pull(self, workload: str, id_: str, keep: Collection[str], source: Source) -> float:
        """Copy a version into the memory of this machine; returns the processor time that it took."""
        for one in keep:
            self.memory_of(workload).set_counted(one)
        return self._receive(workload, id_, keep, source)

    def _receive(self, workload: str, id_: str, keep: Collection[str], source: Source) -> float:
        memory = self.memory_of(workload)
        lanes = _Lanes(source.address, workload, id_)
        try:
            memory.receive(Commit.from_json(source.commit), source.pieces, keep, lanes.fill)
        except OSError as error:
            raise DlrlError(f"a copy of {workload}'s state: {error.strerror or error}") from None
        return lanes.cpu_s


class _Lanes:
    """Connections over which the ranges of one version come, side by side."""

    def __init__(self, address: Address, workload: str, id_: str) -> None:
        self._address = address
        self._what = (workload, id_)
        self.cpu_s = 0.0

    def fill(self, wanted: Sequence[tuple[Piece, memoryview]]) -> None:
        ranges = [
            (piece.file, piece.start + at, view[at : at + _RANGE])
            for piece, view in wanted
            for at in range(0, len(view), _RANGE)
        ]
        with ThreadPoolExecutor(_LANES, thread_name_prefix="dlrl-pull") as lanes:
            self.cpu_s += sum(lanes.map(self._lane, [ranges[lane::_LANES] for lane in range(_LANES)]))

    def _lane(self, ranges: Sequence[tuple[str, int, memoryview]]) -> float:
        if not ranges:
            return 0.0
        began = time.thread_time()
        with connected(self._address) as reader:
            for file, start, view in ranges:
                reader.read_into([*self._what, file], start, view)
        return time.thread_time() - began


def _reason(error: Exception) -> str:
    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0][:200]}" if lines else type(cause).__name__
