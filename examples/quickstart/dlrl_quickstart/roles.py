"""Five roles that teach a tiny policy to write a hidden word: plain Python, seconds on a laptop.

The policy has one softmax over the alphabet for each position of the word. A reward of 1 is paid for each
right letter; the critic learns the mean reward of each position, the reference keeps the policy near its start.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from dlrl_core import BaseWorkload, trainer_invocation

Logits = list[list[float]]  # for each position, for each letter
Words = list[list[int]]  # for each word, the letter of each position
Scores = list[list[float]]  # for each word, for each position


def log_softmax(logits: list[float]) -> list[float]:
    highest = max(logits)
    log_sum = highest + math.log(sum(math.exp(one - highest) for one in logits))
    return [one - log_sum for one in logits]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


class TokenActor(BaseWorkload):
    """Holds the policy; computes gradients on its shard of the batch and applies their mean."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.logits: Logits = [[0.0] * len(config.alphabet) for _ in config.target]

    @trainer_invocation(target="RANK0", post_func=lambda results: results[0])
    def weights(self) -> Logits:
        return self.logits

    def gradient(self, words: Words, advantages: Scores) -> Logits:
        """Policy gradient of this shard: push up the letters that did better than the critic expected."""
        gradient = []
        for position, logits in enumerate(self.logits):
            gained = [0.0] * len(logits)
            for word, advantage in zip(words, advantages, strict=True):
                gained[word[position]] += advantage[position]
            total, probs = sum(gained), [math.exp(one) for one in log_softmax(logits)]
            gradient.append([(up - prob * total) / len(words) for up, prob in zip(gained, probs, strict=True)])
        return gradient

    def apply(self, gradients: list[Logits]) -> None:
        for position, logits in enumerate(self.logits):
            for letter in range(len(logits)):
                logits[letter] += self.config.lr * mean([one[position][letter] for one in gradients])

    def save_state(self, path: str) -> None:
        (Path(path) / "logits.json").write_text(json.dumps(self.logits))

    def load_state(self, path: str) -> None:
        self.logits = json.loads((Path(path) / "logits.json").read_text())


class TokenRollout(BaseWorkload):
    """Samples words from the policy that it is given."""

    def generate(self, prompts: list[int], weights: Logits, step: int) -> dict[str, Any]:
        """One word for each prompt, with the log-probability of its letters; the same for the same step."""
        chance = random.Random(f"{self.config.seed}-{step}-{self.rank}")
        log_probs = [log_softmax(logits) for logits in weights]
        probs = [[math.exp(one) for one in position] for position in log_probs]
        words = [[chance.choices(range(len(one)), weights=one)[0] for one in probs] for _ in prompts]
        chosen = [[log_probs[place][letter] for place, letter in enumerate(word)] for word in words]
        return {"words": words, "log_probs": chosen}


class TokenReference(BaseWorkload):
    """The policy as it was at the start: every letter equally likely."""

    def log_probs(self, words: Words) -> Scores:
        return [[-math.log(len(self.config.alphabet))] * len(word) for word in words]


class TokenReward(BaseWorkload):
    """Pays for right letters at the right place."""

    def score(self, words: Words) -> Scores:
        target = [self.config.alphabet.index(letter) for letter in self.config.target]
        return [[float(letter == right) for letter, right in zip(word, target, strict=True)] for word in words]


class TokenCritic(BaseWorkload):
    """Expects for each position what it has paid lately."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.expected = [0.0] * len(config.target)

    def advantages(self, rewards: Scores) -> Scores:
        return [[paid - known for paid, known in zip(word, self.expected, strict=True)] for word in rewards]

    def update(self, rewards: Scores) -> None:
        paid = [mean(list(position)) for position in zip(*rewards, strict=True)]
        self.expected = [0.8 * old + 0.2 * new for old, new in zip(self.expected, paid, strict=True)]

    def save_state(self, path: str) -> None:
        (Path(path) / "expected.json").write_text(json.dumps(self.expected))

    def load_state(self, path: str) -> None:
        self.expected = json.loads((Path(path) / "expected.json").read_text())
