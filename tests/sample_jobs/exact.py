"""A small training job with real state in which every number depends on every one before it.

Whatever dies on the way, the end must be the same to the last bit; a step done twice, or not at all, would show.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from dlrl_core import BaseTrainer, BaseWorkload

MODULUS = 2**61 - 1


def mixed(*values) -> int:
    """A number that depends on all of them, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=7).digest(), "big")


class Stateful(BaseWorkload):
    """Numbers that each update changes, and the steps that were applied."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.numbers: list[int] = []
        self.applied: list[int] = []

    def init_model(self, seed):
        self.numbers = [mixed(self.role.value, self.rank, seed, i) for i in range(64)]
        self.applied = []
        return len(self.numbers)

    def digest(self):
        return mixed(self.numbers, self.applied)

    def update(self, step, batch):
        time.sleep(self.config.get("pause_s", 0))
        self.applied.append(step)
        self.numbers = [(number * 31 + mixed(number, step, batch)) % MODULUS for number in self.numbers]
        return self.digest()

    def save_state(self, path):
        text = json.dumps({"numbers": self.numbers, "applied": self.applied})
        (Path(path) / "state.json").write_text(text)

    def load_state(self, path):
        state = json.loads((Path(path) / "state.json").read_text())
        self.numbers, self.applied = state["numbers"], state["applied"]

    def end_state(self):
        return {"digest": self.digest(), "applied": self.applied}

    def pid(self):
        return os.getpid()


class Pure(BaseWorkload):
    """Answers that depend on the question alone, and on a seed from `init`."""

    def init_model(self, seed):
        self.seed = seed

    def answer(self, step, questions, context):
        time.sleep(self.config.get("pause_s", 0))
        return [mixed(self.role.value, self.seed, step, question, context) for question in questions]

    def pid(self):
        return os.getpid()


class ExactTrainer(BaseTrainer):
    """So many steps, or fewer if the file `enough` is there at the end of one."""

    def init(self):
        seed = self.config.seed
        for group in (self.RG_ACTOR, self.RG_CRITIC, self.RG_ROLLOUT, self.RG_REFERENCE, self.RG_REWARD):
            group.init_model(seed)

    def fit(self):
        chain = self.progress.get("chain", 0)
        for step in self.steps(self.config.steps):
            weights = mixed(self.RG_ACTOR.digest())
            prompts = [mixed(chain, step, i) for i in range(6)]
            samples = self.joined(self.RG_ROLLOUT.answer(step, prompts, weights))
            reference = self.joined(self.RG_REFERENCE.answer(step, samples, 0))
            rewards = self.joined(self.RG_REWARD.answer(step, samples, mixed(reference)))
            values = self.RG_CRITIC.update(step, mixed(rewards))
            self.RG_ACTOR.update(step, mixed(samples, rewards, values))
            chain = mixed(chain, samples, rewards, values)
            self.log(reward=float(rewards[0] % 1000))
            self.commit(step, durable=self.config.get("durable", False), chain=chain)
            if self.config.get("enough") and Path(self.config.enough).exists():
                break
        return {"chain": chain, "actor": self.RG_ACTOR.end_state(), "critic": self.RG_CRITIC.end_state()}

    def joined(self, shards):
        return [one for shard in shards for one in shard]
