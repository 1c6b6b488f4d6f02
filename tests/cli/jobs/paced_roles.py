"""A job that takes its time, talks, and fails when it is told to."""

from __future__ import annotations

import time
from typing import Any

from dlrl_core import BaseTrainer, BaseWorkload


class PacedActor(BaseWorkload):
    def work(self, step: int) -> int:
        if step == self.config.fail_at:
            raise ValueError(f"told to fail at step {step}")
        time.sleep(self.config.pause_s)
        return step


class PacedTrainer(BaseTrainer):
    def init(self) -> None:
        print("the trainer talks on its stdout")

    def fit(self) -> dict[str, Any]:
        for step in self.steps(self.config.steps):
            self.RG_ACTOR.work(step)
            self.log(done=step + 1)
        return {"done": self.config.steps, "loss": float("nan")}
