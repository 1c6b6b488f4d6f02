"""The policy of the commit benchmark with OpenRLHF: the adapter's own workload, and a batch to read and train on."""

from __future__ import annotations

from typing import Any

from dlrl_openrlhf import cpu

cpu.prepare()

import torch  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.utils import get_strategy  # noqa: E402

from benchmarks.commit_roles import MeasuredWorkload  # noqa: E402
from dlrl_openrlhf.config.own_parser import own_namespace  # noqa: E402
from dlrl_openrlhf.workloads import ActorWorkload  # noqa: E402

_PROMPT, _ANSWER = 16, 48
_TOKENS = 400


class DeepSpeedActor(MeasuredWorkload, ActorWorkload):
    """OpenRLHF's policy on DeepSpeed, without engines to give its weights to."""

    reading_methods = ActorWorkload.reading_methods

    def set_up(self) -> None:
        args = cpu.without_cuda(own_namespace(list(self.config.flags)))
        self.init_model_from_pretrained(get_strategy(args), str(self.config.model), 10_000, None)
        chance = torch.Generator().manual_seed(self.rank)
        self._batch: dict[str, Any] = _batch(int(self.config.samples), chance)

    def read_once(self) -> None:
        """The log probabilities of one batch."""
        self.forward(self._batch["sequences"], self._batch["action_mask"], self._batch["attention_mask"])

    def update(self) -> None:
        self.append(Experience(**self._batch))
        self.fit()


def _batch(samples: int, chance: torch.Generator) -> dict[str, Any]:
    sequences = torch.randint(3, _TOKENS, (samples, _PROMPT + _ANSWER), generator=chance)
    answers = (samples, _ANSWER)
    return {
        "sequences": sequences,
        "attention_mask": torch.ones_like(sequences),
        "action_mask": torch.ones(answers, dtype=torch.bool),
        "action_log_probs": torch.full(answers, -6.0),
        "advantages": torch.randn(answers, generator=chance),
        "rollout_log_probs": torch.full(answers, -6.0),
        "total_length": torch.full((samples,), _PROMPT + _ANSWER),
        "response_length": torch.full((samples,), _ANSWER),
    }
