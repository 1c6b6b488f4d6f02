"""The role and the trainer of the commit benchmark, imported by name in the processes of its job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation
from dlrl_core.workload.captured_state import CapturedState, SavedState, arrays_of, capture_arrays

READ_S = 5.0
STEPS = 3


class LargeHolder(BaseWorkload):
    """State as large as that of a rank of a real model, in one array."""

    def init_model(self) -> None:
        self.state = np.ones(int(self.config.state_bytes), dtype=np.uint8)

    def capture_state(self) -> CapturedState:
        return capture_arrays({"state": self.state})

    def restore_state(self, saved: SavedState) -> None:
        self.state = arrays_of(saved)["state"].copy()

    @trainer_invocation(changes_state=False)
    def generate(self) -> int:
        """Most of a step: computes on one core, and reads the state."""
        until, total = time.perf_counter() + READ_S, 0
        small = np.ones((256, 256))
        while time.perf_counter() < until:
            total += int((small @ small)[0, 0]) + int(self.state[0])
        return total

    def change(self) -> None:
        np.add(self.state, 1, out=self.state)

    @trainer_invocation(changes_state=False)
    def copy_s(self) -> float:
        """How long one copy of the state to memory that is there takes."""
        target = np.ones_like(self.state)
        began = time.perf_counter()
        np.copyto(target, self.state)
        return time.perf_counter() - began


class PacedTrainer(BaseTrainer):
    """Blocks of steps with commits at the default pace and without any, in turns."""

    def init(self) -> None:
        self.RG_ACTOR.init_model()

    def fit(self) -> dict[str, Any]:
        found: dict[str, Any] = {"with": [], "without": [], "blocked": [], "copies": [], "memory": 0}
        step, change_s = 0, 0.0
        for number in range(2 * int(self.config.rounds)):
            is_with = bool(number % 2)
            found["copies"].append(max(self.RG_ACTOR.copy_s()))
            began = time.perf_counter()
            for _ in range(STEPS):
                self.RG_ACTOR.generate()
                changed = time.perf_counter()
                self.RG_ACTOR.change()
                took = time.perf_counter() - changed
                if is_with:
                    found["memory"] = max(found["memory"], _used(Path(self.config.memory)))
                    committed = time.perf_counter()
                    self.commit(step)
                    found["blocked"].append(time.perf_counter() - committed + max(0.0, took - change_s))
                else:
                    change_s = took if not change_s else min(change_s, took)
                step += 1
            found["with" if is_with else "without"].append((time.perf_counter() - began) / STEPS)
        return found


def _used(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
