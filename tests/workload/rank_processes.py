"""Ranks of a role as processes of their own, each with a keeper of its state; most of that state all of them hold alike."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from state_samples import GatedBuffer, commit

from dlrl_core.workload.captured_state import CapturedState, SavedState, arrays_of, capture_arrays
from dlrl_core.workload.state_keeper import KeeperRequest
from dlrl_state.keeper import NodeMemoryKeeper

ALIKE = {"embedding": 5 * 2**20 + 24, "layers": 3 * 2**20, "norm": 808}
"""Arrays that all ranks hold alike, and their bytes: several stripes, of which some have parts of two arrays."""
ALIKE_BYTES = sum(ALIKE.values())
OWN_BYTES = 2**16
_forked = multiprocessing.get_context("forkserver")
_forked.set_forkserver_preload(["dlrl_state.keeper"])


class Model:
    """The workload: what ranks hold alike depends on the step, their own part also on the rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._gate: threading.Event | None = None
        self.train(0)

    def train(self, step: int) -> str:
        whole = np.random.default_rng(step)
        self.arrays = {name: whole.integers(0, 255, size, dtype=np.uint8) for name, size in ALIKE.items()}
        own = np.random.default_rng((step, self._rank))
        self.arrays["moments"] = own.integers(0, 255, OWN_BYTES, dtype=np.uint8)
        return self.digest()

    def digest(self) -> str:
        return hashlib.sha256(b"".join(self.arrays[name].tobytes() for name in sorted(self.arrays))).hexdigest()

    def change(self, name: str) -> None:
        """One byte that the other ranks have not."""
        self.arrays[name][-1] ^= 1

    def stand_still_at(self, name: str) -> None:
        """The copy of this array does not come to an end before `go_on`."""
        self._gate = threading.Event()
        self._gated = name

    def go_on(self) -> None:
        assert self._gate is not None
        self._gate.set()

    def capture_state(self) -> CapturedState:
        captured = capture_arrays(self.arrays)
        buffers = dict(captured.buffers)
        if self._gate is not None:
            buffers[self._gated] = GatedBuffer(buffers[self._gated], self._gate)
        return CapturedState(layout=captured.layout, buffers=buffers, alike={name: f"model.{name}" for name in ALIKE})

    def restore_state(self, saved: SavedState) -> None:
        self.arrays = arrays_of(saved)


class RankProcess:
    """One rank. Its methods are called in its process, with `start` and `answer` on several ranks at once."""

    def __init__(self, rank: int, *, run_id: str, memory: Path, durable: Path | None = None) -> None:
        self.name = f"actor-{rank}"
        request = KeeperRequest(
            run_id=run_id, workload=self.name, role="actor", durable=str(durable) if durable else None
        )
        self._calls, theirs = _forked.Pipe()
        self._process = _forked.Process(target=_serve, args=(theirs, rank, request, str(memory)), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, method: str, *args: Any) -> None:
        self._calls.send((method, args))

    def answer(self) -> Any:
        assert self._calls.poll(60), f"'{self.name}' does not answer"
        is_good, value = self._calls.recv()
        assert is_good, value
        return value

    def call(self, method: str, *args: Any) -> Any:
        self.start(method, *args)
        return self.answer()

    def kill(self) -> None:
        """SIGKILL; nothing if it is dead."""
        self._process.kill()
        self._process.join()


class _Served:
    def __init__(self, rank: int, request: KeeperRequest) -> None:
        self.model = Model(rank)
        self.keeper = NodeMemoryKeeper(request)

    def begin(self, version: int, keep: list[str]) -> None:
        self.keeper.begin(commit(version), keep, self.model)

    def commit(self, version: int, keep: list[str]) -> str | None:
        """The error of a whole commit."""
        self.begin(version, keep)
        self.keeper.wait()
        return self.keeper.outcome(f"id{version}").error

    def outcome(self, version: int) -> str | None:
        return self.keeper.outcome(f"id{version}").error

    def load(self, version: int) -> str:
        assert self.keeper.damage(f"id{version}") is None
        self.keeper.load(f"id{version}", self.model)
        return self.model.digest()

    def held(self) -> list[str]:
        return sorted(self.keeper.held().commits)


def _serve(calls: Connection, rank: int, request: KeeperRequest, memory: str) -> None:
    os.environ["DLRL_MEMORY"] = memory
    served = _Served(rank, request)
    while calls.poll(None):
        method, args = calls.recv()
        owner: Any = next(one for one in (served, served.model, served.keeper) if hasattr(one, method))
        try:
            calls.send((True, getattr(owner, method)(*args)))
        except Exception as error:
            calls.send((False, f"{type(error).__name__}: {error}"))
