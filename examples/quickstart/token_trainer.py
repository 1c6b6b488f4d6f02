"""The training loop of the quickstart: generate, judge, learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlrl_core import BaseTrainer, whole


class TokenTrainer(BaseTrainer):
    """Policy gradient with a critic and a penalty for leaving the reference policy."""

    def __init__(self, actor_handles: Any, actor_classes: Any, config: Any) -> None:
        super().__init__(actor_handles, actor_classes, config)
        self.history: list[float] = []

    def init(self) -> None:
        self.RG_ROLLOUT.load(whole(self.RG_ACTOR.weights()))

    def fit(self) -> dict[str, Any]:
        for _ in self.steps(self.config.steps):
            self.step()
        return {"first_reward": self.history[0], "last_reward": self.history[-1], "rewards": self.history}

    def step(self) -> None:
        prompts = list(range(self.config.batch))
        shards = self.RG_ROLLOUT.generate(prompts)
        tokens = np.concatenate([shard["tokens"] for shard in shards])
        log_probs = np.concatenate([shard["log_probs"] for shard in shards])
        right = np.concatenate(self.RG_REWARD.score(tokens))
        reference = np.concatenate(self.RG_REFERENCE.log_probs(tokens))
        rewards = right - self.config.kl * (log_probs - reference)
        advantages = np.concatenate(self.RG_CRITIC.advantages(rewards))
        self.RG_CRITIC.update(rewards)
        self.RG_ACTOR.apply(whole(self.RG_ACTOR.gradient(tokens, advantages)))
        self.RG_ROLLOUT.load(whole(self.RG_ACTOR.weights()))
        self.history.append(float(right.mean()))
        self.log(reward=self.history[-1], kl=float((log_probs - reference).mean()))
