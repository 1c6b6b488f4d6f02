"""The training loop of the quickstart: generate, judge, learn, commit."""

from __future__ import annotations

from itertools import chain
from typing import Any

from dlrl_core import BaseTrainer, whole
from dlrl_quickstart.roles import Scores, mean


class TokenTrainer(BaseTrainer):
    """Policy gradient with a critic and a penalty for leaving the reference policy."""

    def init(self) -> None:
        """Every role is ready as it was constructed."""

    def fit(self) -> dict[str, Any]:
        rewards = list(self.progress.get("rewards", []))
        for step in self.steps(self.config.steps):
            rewards.append(self.step(step))
            self.commit(step, rewards=rewards)
        return {"first_reward": rewards[0], "last_reward": rewards[-1], "rewards": rewards}

    def step(self, step: int) -> float:
        prompts = list(range(self.config.batch))
        shards = self.RG_ROLLOUT.generate(prompts, whole(self.RG_ACTOR.weights()), step)
        words = joined(shard["words"] for shard in shards)
        right = joined(self.RG_REWARD.score(words))
        drift = minus(joined(shard["log_probs"] for shard in shards), joined(self.RG_REFERENCE.log_probs(words)))
        rewards = minus(right, drift, self.config.kl)
        advantages = joined(self.RG_CRITIC.advantages(rewards))
        self.RG_CRITIC.update(rewards)
        self.RG_ACTOR.apply(whole(self.RG_ACTOR.gradient(words, advantages)))
        reward = mean(joined(right))
        self.log(reward=reward, kl=mean(joined(drift)))
        return reward


def joined(shards: Any) -> list[Any]:
    """The shards of all ranks as one list, in rank order."""
    return list(chain.from_iterable(shards))


def minus(left: Scores, right: Scores, factor: float = 1.0) -> Scores:
    """`left - factor * right`, for each position of each word."""
    return [[a - factor * b for a, b in zip(*pair, strict=True)] for pair in zip(left, right, strict=True)]
