"""The processes of acme: rollouts pull arms around the actor's mean, the actor moves it to better ones."""

from __future__ import annotations

import os
import random
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


class AcmeTrainer(BaseTrainer):
    def __init__(self, actor_handles: Any, actor_classes: Any, config: Any) -> None:
        super().__init__(actor_handles, actor_classes, config)
        self.mean = 0.0
        self.mean_rewards: list[float] = []
        self.prepared: dict[str, Any] = {}

    def init(self) -> None:
        self.prepared = {
            "trainer": os.environ.get(PREPARED_FOR),
            "actor": self.RG_ACTOR.prepared_for(),
            "rollout": self.RG_ROLLOUT.prepared_for(),
        }

    def fit(self) -> dict[str, Any]:
        for step in range(self.config.steps):
            seeds = [step * self.config.batch + index for index in range(self.config.batch)]
            samples = self.RG_ROLLOUT.generate(seeds, self.mean)
            self.mean_rewards.append(sum(reward for _, reward in samples) / len(samples))
            self.mean = self.RG_ACTOR.update(samples)
        return {"mean": self.mean, "mean_rewards": self.mean_rewards, "prepared": self.prepared}
