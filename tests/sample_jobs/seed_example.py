"""The classes that seed 000's API example names."""

from __future__ import annotations

import os

import ray

from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation


class TestWorkload(BaseWorkload):
    """What the three roles of the example have in common."""

    __test__ = False

    def describe(self):
        return {
            "name": self.name,
            "config": dict(self.config),
            "e0": os.environ.get("e0"),
            "e1": os.environ.get("e1"),
            "node": ray.get_runtime_context().get_node_id(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }


@ray.remote
class TestActor(TestWorkload):
    @trainer_invocation()
    def update(self, batch):
        return [self.rank, batch]


class TestRollout(TestWorkload):
    def generate(self, prompts):
        return [f"{prompt}!" for prompt in prompts]


class TestReference(TestWorkload):
    def score(self, samples):
        return [len(sample) for sample in samples]


class TestInteractiveTrainer(BaseTrainer):
    __test__ = False

    def __init__(self, actor_handles, actor_classes, config):
        super().__init__(actor_handles, actor_classes, config)
        self.samples = None

    def init(self):
        self.samples = []

    def fit(self):
        for shard in self.RG_ROLLOUT.generate(["a", "bb", "ccc"]):
            self.samples += shard
        scores = self.RG_REFERENCE.score(self.samples)
        updated = self.RG_ACTOR.update([score for shard in scores for score in shard])
        facts = [fact for role in ("ACTOR", "ROLLOUT", "REFERENCE") for fact in getattr(self, f"RG_{role}").describe()]
        return {"samples": self.samples, "updated": updated, "facts": facts}
