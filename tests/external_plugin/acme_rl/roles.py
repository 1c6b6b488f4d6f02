"""The processes of acme: rollouts pull arms around the actor's mean, the actor moves it to better ones."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

from acme_rl.plugin import PREPARED_FOR
from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation

Sample = tuple[float, float]
"""The arm that was pulled, and its reward."""


def _joined(shards: list[list[Sample]]) -> list[Sample]:
    return [sample for shard in shards for sample in shard]


def _first(results: list[float]) -> float:
    return results[0]


class _AcmeWorkload(BaseWorkload):
    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)

    @trainer_invocation()
    def prepared_for(self) -> str | None:
        """What `AcmeAdapter.prepare_process` was told in this process."""
        return os.environ.get(PREPARED_FOR)


class AcmeRollout(_AcmeWorkload):
    @trainer_invocation(post_func=_joined)
    def generate(self, seeds: list[int], mean: float) -> list[Sample]:
        """One sample for each seed; the same seed and mean give the same sample on any rank."""
        time.sleep(self.config.pull_s)
        arms = [mean + random.Random(seed).gauss(0.0, 1.0) for seed in seeds]
        return [(arm, -((arm - self.config.goal) ** 2)) for arm in arms]


class AcmeActor(_AcmeWorkload):
    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.mean = 0.0

    # Each rank sees all samples, so that all ranks keep the same mean.
    @trainer_invocation(auto_shard=False, post_func=_first)
    def update(self, samples: list[Sample]) -> float:
        """The new mean, one policy gradient step further, with the average reward as baseline."""
        baseline = sum(reward for _, reward in samples) / len(samples)
        gradient = sum((arm - self.mean) * (reward - baseline) for arm, reward in samples) / len(samples)
        spread = sum((arm - self.mean) ** 2 for arm, _ in samples) / len(samples)
        self.mean += self.config.lr * gradient / (2.0 * spread + 1.0)
        return self.mean

    @trainer_invocation(auto_shard=False)
    def start_from(self, mean: float) -> None:
        self.mean = mean

    def save_state(self, path: str) -> None:
        (Path(path) / "mean.json").write_text(json.dumps(self.mean))

    def load_state(self, path: str) -> None:
        self.mean = json.loads((Path(path) / "mean.json").read_text())


class AcmeTrainer(BaseTrainer):
    """Commits every step, and, if `save_to` names a file, saves there what a later job can resume from."""

    def __init__(self, actor_handles: Any, actor_classes: Any, config: Any) -> None:
        super().__init__(actor_handles, actor_classes, config)
        self.start: dict[str, Any] = {"steps": 0, "mean": 0.0, "mean_rewards": []}
        self.prepared: dict[str, Any] = {}

    def init(self) -> None:
        self.prepared = {
            "trainer": os.environ.get(PREPARED_FOR),
            "actor": self.RG_ACTOR.prepared_for(),
            "rollout": self.RG_ROLLOUT.prepared_for(),
        }
        if self.config.resume:
            self.start = json.loads(Path(self.config.save_to).read_text())
        self.RG_ACTOR.start_from(self.start["mean"])

    def fit(self) -> dict[str, Any]:
        done = dict(self.progress or self.start)
        for step in range(done["steps"], self.config.steps):
            self.begin_step(step, self.config.steps)
            done = self._step(step, done)
            self.commit(step, **done)
            self._save(done)
        self.end_steps(self.config.steps)
        return {"mean": done["mean"], "mean_rewards": done["mean_rewards"], "prepared": self.prepared}

    def _step(self, step: int, done: dict[str, Any]) -> dict[str, Any]:
        seeds = [step * self.config.batch + index for index in range(self.config.batch)]
        samples = self.RG_ROLLOUT.generate(seeds, done["mean"])
        reward = sum(reward for _, reward in samples) / len(samples)
        mean = self.RG_ACTOR.update(samples)
        return {"steps": step + 1, "mean": mean, "mean_rewards": [*done["mean_rewards"], reward]}

    def _save(self, done: dict[str, Any]) -> None:
        if self.config.save_to is not None:
            part = Path(f"{self.config.save_to}.part")
            part.write_text(json.dumps(done))
            part.replace(self.config.save_to)
