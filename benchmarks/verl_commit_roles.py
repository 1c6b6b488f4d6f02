"""The policy of the commit benchmark with verl: the adapter's own workload, and a batch to read and train on."""

from __future__ import annotations

from typing import Any

from dlrl_verl import cpu

cpu.prepare()

import torch  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.utils import tensordict_utils  # noqa: E402
from verl.workers.utils.padding import left_right_2_no_padding  # noqa: E402

from benchmarks.commit_roles import MeasuredWorkload  # noqa: E402
from dlrl_verl.policy import ActorWorkload  # noqa: E402

_PROMPT, _ANSWER = 16, 48
_TOKENS = 384


class EngineActor(MeasuredWorkload, ActorWorkload):
    """verl's policy on Megatron or FSDP 2, without a rollout to give its weights to."""

    compute_log_prob: Any
    update_actor: Any

    def set_up(self) -> None:
        with initialize_config_module("verl.trainer.config", version_base=None):
            told = cpu.without_cuda(compose(str(self.config.base), list(self.config.overrides)))
        OmegaConf.resolve(told)
        self.build(config=told.actor_rollout_ref, role="actor")
        self.worker.init_model()
        self._samples = int(self.config.samples)

    def read_once(self) -> None:
        """The log probabilities of one batch."""
        self.compute_log_prob(self._batch(compute_loss=False))

    def update(self) -> None:
        told = {"global_batch_size": self._samples, "mini_batch_size": self._samples, "epochs": 1, "seed": 1}
        self.update_actor(self._batch(compute_loss=True, dataloader_kwargs={"shuffle": False}, **told))

    def _batch(self, **told: Any) -> Any:
        data = left_right_2_no_padding(_padded(self._samples).to_tensordict())
        tensordict_utils.assign_non_tensor(data, calculate_entropy=True, **told)
        return data


def _padded(samples: int) -> Any:
    """Prompts and answers that fill their places."""
    chance = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, _TOKENS, (samples, _PROMPT + _ANSWER), generator=chance)
    answers = (samples, _ANSWER)
    return DataProto.from_single_dict(
        {
            "prompts": tokens[:, :_PROMPT],
            "responses": tokens[:, _PROMPT:],
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "position_ids": torch.arange(_PROMPT + _ANSWER).expand_as(tokens).contiguous(),
            "response_mask": torch.ones(answers, dtype=torch.long),
            "old_log_probs": torch.full(answers, -6.0),
            "advantages": torch.randn(answers, generator=chance),
        },
        meta_info={"temperature": 1.0, "global_token_num": [_PROMPT + _ANSWER] * samples},
    )
