"""OpenRLHF's own loop over prompts, with nothing behind it: no model, no engine, no Ray.

`python stock_loop.py PROMPTS,BATCH,GENERATED,EPISODES,EVAL_STEPS ...`; prints what each loop told, as JSON.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from dlrl_openrlhf import cpu

cpu.prepare()

from openrlhf.trainer import ppo_trainer  # noqa: E402
from openrlhf.trainer.ppo_utils import samples_generator  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from dlrl_adapter_kit.framework_seam import PatchedRay, replaced  # noqa: E402
from dlrl_adapter_kit.plain_json import from_plain  # noqa: E402
from dlrl_openrlhf.ppo import CommittingPPOTrainer  # noqa: E402
from dlrl_openrlhf.step_count import most_steps  # noqa: E402

SAMPLES = 2


class GeneratorStandIn(samples_generator.SamplesGenerator):
    """Answers every prompt twice, without an engine."""

    def _generate_vllm(self, dataloader_iter: Any, num_prompts: int, **_: Any) -> tuple[list[str], int, bool]:
        prompts, _, _, is_over = samples_generator._collect_prompt_batch(dataloader_iter, num_prompts)
        return prompts * SAMPLES, len(prompts), is_over


class TrainerStandIn(CommittingPPOTrainer):
    """OpenRLHF's trainer with models and engines left out; it tells what happens."""

    def __init__(self, prompts: int, args: Any) -> None:
        self.args, self.steps, self.told = args, self, []
        self.prompts_dataloader = StatefulDataLoader(range(prompts), batch_size=1, collate_fn=_as_prompts)
        self.eval_dataloader = [None]
        self.samples_generator = GeneratorStandIn(SimpleNamespace(args=args), self.prompts_dataloader, None, None, [])
        self.generate_kwargs: dict[str, Any] = {}
        self.actor_model_group = SimpleNamespace(async_run_method=lambda **_: [])
        self.critic_model_group = self.wandb_logger = self.tensorboard_logger = None
        self.kl_ctl = SimpleNamespace(value=0.1)
        self.best_eval_metric_value, self.best_eval_metric_key = float("-inf"), ""
        self._latest_eval_metric_value = None

    def train_step(self, rollout_samples: Any, global_step: int) -> tuple[dict[str, Any], int]:
        return {}, global_step + 1

    def evaluate(self, global_step: int, **_: Any) -> dict[str, float]:
        self.told.append(["evaluated", global_step])
        return {"eval_d_pass1": 1.0 / global_step}

    # ---- what it tells

    @property
    def resumed(self) -> dict[str, Any]:
        return {}

    def began(self, global_step: int) -> None:
        self.told.append(["began", global_step])

    def done(self, global_step: int, status: Any, seconds: float) -> None:
        self.told.append(["done", global_step])

    def commit_step(self, global_step: int, progress: dict[str, Any]) -> None:
        states = from_plain(progress["client_states"])
        self.told.append(
            ["committed", global_step, states["best_eval_metric_value"], states["latest_eval_metric_value"]]
        )


def _as_prompts(numbers: list[int]) -> tuple[Any, ...]:
    return numbers, numbers, numbers, numbers


def told_by_loop(prompts: int, batch: int, generated: int, episodes: int, eval_steps: int) -> dict[str, Any]:
    args = SimpleNamespace(
        train=SimpleNamespace(num_episodes=episodes),
        rollout=SimpleNamespace(
            batch_size=batch, vllm_generate_batch_size=generated, n_samples_per_prompt=SAMPLES, micro_batch_size=1
        ),
        vllm=SimpleNamespace(enable_sleep=False),
        algo=SimpleNamespace(dynamic_filtering_enable=False),
        eval=SimpleNamespace(steps=eval_steps, temperature=1.0, n_samples_per_prompt=1),
        ckpt=SimpleNamespace(save_steps=float("inf"), load_enable=False, path=""),
        logger=SimpleNamespace(logging_steps=1),
    )
    with replaced(ppo_trainer, ray=PatchedRay()):
        trainer = TrainerStandIn(prompts, args)
        trainer.fit()
    return {"told": trainer.told, "most_steps": most_steps(args, prompts=prompts)}


if __name__ == "__main__":
    print(json.dumps([told_by_loop(*map(int, word.split(","))) for word in sys.argv[1:]]))
