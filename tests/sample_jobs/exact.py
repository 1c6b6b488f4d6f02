"""A small training job with real state in which every number depends on every one before it.

Whatever dies on the way, the end must be the same to the last bit; a step done twice, or not at all, would show.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np

from dlrl_core import BaseTrainer, BaseWorkload
from dlrl_core.workload.captured_state import arrays_of, capture_arrays

BALLAST = 500_000
MODULUS = 2**61 - 1


def mixed(*values) -> int:
    """A number that depends on all of them, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=7).digest(), "big")


class Numbers:
    """What a rank of a stateful role holds."""

    def __init__(self, role: str, rank: int, seed: int) -> None:
        self.values = [mixed(role, rank, seed, i) for i in range(64)]
        self.applied: list[int] = []

    def digest(self) -> int:
        return mixed(self.values, self.applied)

    def update(self, step: int, batch: int) -> int:
        self.applied.append(step)
        self.values = [(value * 31 + mixed(value, step, batch)) % MODULUS for value in self.values]
        return self.digest()

    def end_state(self) -> dict:
        return {"digest": self.digest(), "applied": self.applied}


def answers(role: str, seed: int, step: int, questions: list[int], context: int) -> list[int]:
    return [mixed(role, seed, step, question, context) for question in questions]


def prompts_of(chain: int, step: int) -> list[int]:
    return [mixed(chain, step, i) for i in range(6)]


def end_without_faults(*, steps: int, seed: int, actors: int, critics: int) -> dict:
    """What the trainer returns, computed in one process without Ray."""
    actor = [Numbers("actor", rank, seed) for rank in range(actors)]
    critic = [Numbers("critic", rank, seed) for rank in range(critics)]
    chain = 0
    for step in range(steps):
        weights = mixed([one.digest() for one in actor])
        samples = answers("rollout", seed, step, prompts_of(chain, step), weights)
        reference = answers("reference", seed, step, samples, 0)
        rewards = answers("reward", seed, step, samples, mixed(reference))
        values = [one.update(step, mixed(rewards)) for one in critic]
        for one in actor:
            one.update(step, mixed(samples, rewards, values))
        chain = mixed(chain, samples, rewards, values)
    return {"chain": chain, "actor": [one.end_state() for one in actor], "critic": [one.end_state() for one in critic]}


class Stateful(BaseWorkload):
    """Numbers that each update changes, and the steps that were applied."""

    numbers: Numbers

    def init_model(self, seed):
        self.numbers = Numbers(self.role.value, self.rank, seed)

    def digest(self):
        return self.numbers.digest()

    def update(self, step, batch):
        time.sleep(self.config.get("pause_s", 0))
        return self.numbers.update(step, batch)

    def save_state(self, path):
        text = json.dumps({"values": self.numbers.values, "applied": self.numbers.applied})
        (Path(path) / "state.json").write_text(text)

    def load_state(self, path):
        state = json.loads((Path(path) / "state.json").read_text())
        self.numbers = Numbers(self.role.value, self.rank, 0)
        self.numbers.values, self.numbers.applied = state["values"], state["applied"]

    def end_state(self):
        return self.numbers.end_state()

    def pid(self):
        return os.getpid()


class Buffered(Stateful):
    """The same with its values in an array that each update changes in place, and much that only has to be copied."""

    def init_model(self, seed):
        super().init_model(seed)
        self.array = np.array(self.numbers.values, dtype=np.int64)
        self.ballast = np.full(BALLAST, self.array[0])

    def update(self, step, batch):
        digest = super().update(step, batch)
        self.array[:] = self.numbers.values
        self.ballast[:] = self.array[0]
        return digest

    def capture_state(self):
        applied = np.array(self.numbers.applied, dtype=np.int64)
        return capture_arrays({"array": self.array, "ballast": self.ballast, "applied": applied})

    def restore_state(self, saved):
        arrays = arrays_of(saved)
        self.array, self.ballast = arrays["array"].copy(), arrays["ballast"].copy()
        self.numbers = Numbers(self.role.value, self.rank, 0)
        self.numbers.values, self.numbers.applied = self.array.tolist(), arrays["applied"].tolist()
        assert (self.ballast == self.array[0]).all(), "the copy was made while the state changed"


class Pure(BaseWorkload):
    """Answers that depend on the question alone, and on a seed from `init`."""

    def init_model(self, seed):
        self.seed = seed

    def answer(self, step, questions, context):
        time.sleep(self.config.get("pause_s", 0))
        return answers(self.role.value, self.seed, step, questions, context)

    def pid(self):
        return os.getpid()


class ExactTrainer(BaseTrainer):
    """So many steps, or fewer if the file `enough` is there at the end of one. A job may lack roles, but no actor."""

    def init(self):
        for name in self.get_role_groups():
            getattr(self, name).init_model(self.config.seed)

    def fit(self):
        chain = self.progress.get("chain", 0)
        for step in self.steps(self.config.steps):
            weights = mixed(self.RG_ACTOR.digest())
            samples = self.answers_of("rollout", step, prompts_of(chain, step), weights)
            reference = self.answers_of("reference", step, samples, 0)
            rewards = self.answers_of("reward", step, samples, mixed(reference))
            values = self.RG_CRITIC.update(step, mixed(rewards)) if self.has("critic") else []
            self.RG_ACTOR.update(step, mixed(samples, rewards, values))
            chain = mixed(chain, samples, rewards, values)
            self.log(reward=float(rewards[0] % 1000))
            self.commit(step, durable=self.config.get("durable", False), chain=chain)
            if self.config.get("enough") and Path(self.config.enough).exists():
                break
        critic = self.RG_CRITIC.end_state() if self.has("critic") else []
        return {"chain": chain, "actor": self.RG_ACTOR.end_state(), "critic": critic}

    def has(self, role):
        return f"RG_{role.upper()}" in self.get_role_groups()

    def answers_of(self, role, step, questions, context):
        """Those of the role; computed here if the job does not have it."""
        if not self.has(role):
            return answers(role, self.config.seed, step, questions, context)
        shards = getattr(self, f"RG_{role.upper()}").answer(step, questions, context)
        return [one for shard in shards for one in shard]
