"""Five roles that teach a tiny policy to write a hidden word: numpy only, seconds on a laptop.

The policy has one softmax over the alphabet for each position of the word. A reward of 1 is paid for each
right letter; the critic learns the mean reward of each position, the reference keeps the policy near its start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrl_core import BaseWorkload, trainer_invocation

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]
Batch = dict[str, Any]


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normed: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normed


def chosen(log_probs: Floats, tokens: Tokens) -> Floats:
    """Log-probability of each token of each word."""
    picked: Floats = log_probs[np.arange(tokens.shape[1]), tokens]
    return picked


class TokenActor(BaseWorkload):
    """Holds the policy; computes gradients on its shard of the batch and applies their mean."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.logits: Floats = np.zeros((len(config.target), len(config.alphabet)))

    @trainer_invocation(target="RANK0", post_func=lambda results: results[0])
    def weights(self) -> Floats:
        return self.logits

    def gradient(self, tokens: Tokens, advantages: Floats) -> Floats:
        """Policy gradient of this shard: push up the letters that did better than the critic expected."""
        probs = np.exp(log_softmax(self.logits))
        one_hot = np.eye(probs.shape[1])[tokens]
        grad: Floats = ((one_hot - probs) * advantages[..., None]).mean(axis=0)
        return grad

    def apply(self, gradients: list[Floats]) -> None:
        self.logits = self.logits + self.config.lr * np.mean(gradients, axis=0)


class TokenRollout(BaseWorkload):
    """Samples words from the newest policy."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.random = np.random.default_rng([config.seed, self.rank])
        self.log_probs: Floats = np.zeros((0, 0))

    def load(self, weights: Floats) -> None:
        self.log_probs = log_softmax(weights)

    def generate(self, prompts: list[int]) -> Batch:
        """One word for each prompt, with the log-probability of its letters."""
        noise = self.random.gumbel(size=(len(prompts), *self.log_probs.shape))
        tokens: Tokens = (self.log_probs + noise).argmax(axis=-1)
        return {"tokens": tokens, "log_probs": chosen(self.log_probs, tokens)}


class TokenReference(BaseWorkload):
    """The policy as it was at the start: every letter equally likely."""

    def log_probs(self, tokens: Tokens) -> Floats:
        return np.full(tokens.shape, -np.log(len(self.config.alphabet)))


class TokenReward(BaseWorkload):
    """Pays for right letters at the right place."""

    def score(self, tokens: Tokens) -> Floats:
        target = np.array([self.config.alphabet.index(letter) for letter in self.config.target])
        right: Floats = (tokens == target).astype(float)
        return right


class TokenCritic(BaseWorkload):
    """Expects for each position what it has paid lately."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.expected: Floats = np.zeros(len(config.target))

    def advantages(self, rewards: Floats) -> Floats:
        above: Floats = rewards - self.expected
        return above

    def update(self, rewards: Floats) -> None:
        self.expected = 0.8 * self.expected + 0.2 * rewards.mean(axis=0)
