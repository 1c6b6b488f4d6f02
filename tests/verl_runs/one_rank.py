"""The only rank of an actor of verl: it trains, saves and resumes, without Ray."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from dlrl_verl import cpu


def config(name: str, *overrides: str) -> Any:
    """verl's own, for a CPU."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return cpu.without_cuda(compose(name, list(overrides)))


def be_alone() -> None:
    """The only rank."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", RAY_LOCAL_WORLD_SIZE="1", WG_BACKEND="ray")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)


def saved(engine: str, assets: Path, out: Path) -> list[Any]:
    """Its updates after it has saved."""
    be_alone()
    actor = _actor(engine, assets)
    _update(actor)
    actor.save_checkpoint(str(out), None, 1)
    return [_update(actor), _update(actor)]


def loaded(engine: str, assets: Path, out: Path) -> list[Any]:
    """Those of a new one, from there on."""
    actor = _actor(engine, assets)
    actor.load_checkpoint(str(out))
    return [_update(actor), _update(actor)]


def _actor(engine: str, assets: Path) -> Any:
    from verl.workers.engine_workers import ActorRolloutRefWorker

    actor = ActorRolloutRefWorker(config=compose_actor(engine, assets), role="actor")
    actor.init_model()
    return actor


def compose_actor(engine: str, assets: Path, *overrides: str) -> Any:
    """The settings of an actor, of its reference and of its rollout."""
    from omegaconf import OmegaConf

    told = config(
        "ppo_trainer" if engine == "fsdp" else "ppo_megatron_trainer",
        f"actor_rollout_ref.model.path={assets}/model",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.optim.total_training_steps=10",
        *overrides,
    )
    OmegaConf.resolve(told)
    return told.actor_rollout_ref


def _update(actor: Any) -> list[float]:
    """The norms of its gradients: the second one tells what the update before it did."""
    from verl.utils import tensordict_utils

    metrics = tensordict_utils.get(actor.update_actor(batch()), "metrics")
    return [float(norm) for norm in metrics["grad_norm"]]


def batch(first: int = 0, end: int = 4) -> Any:
    """Of four sequences of a prompt and an answer, of different lengths, those from `first` on."""
    import torch
    from verl import DataProto
    from verl.utils import tensordict_utils
    from verl.workers.utils.padding import left_right_2_no_padding

    chance = torch.Generator().manual_seed(0)
    prompts, answers = (torch.randint(3, 384, (4, length), generator=chance) for length in (6, 8))
    in_prompt = torch.arange(6) >= torch.tensor([[0], [1], [2], [3]])
    in_answer = torch.arange(8) < torch.tensor([[8], [3], [5], [7]])
    mask = torch.cat([in_prompt, in_answer], 1).long()
    whole = DataProto.from_single_dict(
        {
            "prompts": prompts,
            "responses": answers,
            "input_ids": torch.cat([prompts, answers], 1) * mask,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
            "response_mask": in_answer.long(),
            "old_log_probs": torch.full((4, 8), -6.0),
            "advantages": torch.randn((4, 8), generator=chance),
        },
        meta_info={"temperature": 1.0, "global_token_num": mask.sum(-1).tolist()},
    )
    data = left_right_2_no_padding(whole[first:end].to_tensordict())
    tensordict_utils.assign_non_tensor(data, calculate_entropy=True, global_batch_size=4, mini_batch_size=4, epochs=1)
    tensordict_utils.assign_non_tensor(data, seed=1, dataloader_kwargs={"shuffle": False}, compute_loss=True)
    return data
