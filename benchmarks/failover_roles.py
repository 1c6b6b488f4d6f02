"""Roles and trainers of the failover benchmarks, imported by name in the processes of a job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dlrl_core import BaseTrainer, BaseWorkload
from dlrl_core.workload.captured_state import CapturedState, SavedState, arrays_of, capture_arrays

STATE_BYTES = 8 * 2**20
SETTLE_S = 1.0  # before a kill, on both sides: what started before it is no part of what is measured


class Holder(BaseWorkload):
    """Holds state that can be committed."""

    def init_model(self) -> None:
        self.state = np.full(STATE_BYTES, 1, dtype=np.uint8)

    def capture_state(self) -> CapturedState:
        return capture_arrays({"state": self.state})

    def restore_state(self, saved: SavedState) -> None:
        self.state = arrays_of(saved)["state"]

    def touch(self) -> int:
        self.state[0] += 1
        return int(self.state[0])

    def pid(self) -> int:
        return os.getpid()


class Answerer(BaseWorkload):
    """Loads its state once, and answers."""

    def init_model(self) -> None:
        self.state = np.full(STATE_BYTES, 1, dtype=np.uint8)

    def touch(self) -> int:
        time.sleep(float(self.config.get("answer_s", 0)))
        return int(self.state[0])

    def pid(self) -> int:
        return os.getpid()


class KillingTrainer(BaseTrainer):
    """Kills a process and notes when its next call returns: of a workload, of a role, of itself."""

    def init(self) -> None:
        self.RG_ACTOR.init_model()
        self.RG_ROLLOUT.init_model()

    def fit(self) -> dict[str, float]:
        marks = Path(self.config.marks)
        for step in self.steps(4):
            if step == 1:
                self._kill(self.RG_ROLLOUT.pid()[0], self.RG_ROLLOUT.touch, marks / "workload")
            elif step == 2:
                self._kill(self.RG_ACTOR.pid()[1], self.RG_ACTOR.touch, marks / "role")
            elif step == 3:
                self._kill(os.getpid(), self.RG_ACTOR.touch, marks / "trainer")
            self.RG_ACTOR.touch()
            self.commit(step)
        return {name: float((marks / name).read_text()) for name in ("workload", "role", "trainer")}

    def _kill(self, pid: int, call: Callable[[], Any], mark: Path) -> None:
        """The first time: kill. After it, here or in whoever comes next: how long until a call returned."""
        began = mark.with_suffix(".began")
        if not began.exists():
            time.sleep(SETTLE_S)
            began.write_text(repr(time.time()))
            os.kill(pid, signal.SIGKILL)
        call()
        if not mark.exists():
            mark.write_text(repr(time.time() - float(began.read_text())))


class SteadyTrainer(BaseTrainer):
    """Steps of calls that mostly wait; tells when each of them began."""

    def init(self) -> None:
        self.RG_ACTOR.init_model()
        self.RG_ROLLOUT.init_model()

    def fit(self) -> list[float]:
        began = []
        for step in self.steps(int(self.config.steps)):
            began.append(time.time())
            self.RG_ROLLOUT.touch()
            self.RG_ACTOR.touch()
            self.commit(step)
        return began
