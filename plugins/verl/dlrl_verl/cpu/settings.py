"""The settings of verl that a CPU can't honour."""

from __future__ import annotations

from typing import Any

from dlrl_verl.cpu.device import NAME, is_needed

_CACHE_BYTES = 128 * 2**20


def without_cuda(config: Any) -> Any:
    """The composed config of a run, changed in place; as it is where there is a GPU."""
    if not is_needed():
        return config
    from omegaconf import open_dict

    actor, critic = config.actor_rollout_ref, config.critic
    with open_dict(config):
        config.trainer.device = NAME
        _engine(actor.actor, actor.model)
        _engine(critic, critic.model)
        _rollout(actor.rollout)
        if config.reward.reward_model.enable:
            _rollout(config.reward.reward_model.rollout)
    return config


def _engine(trained: Any, model: Any) -> None:
    """The reference has its engine's settings from the actor."""
    told = model.get("override_config") or {}
    model.override_config = {**told, "attn_implementation": "sdpa"}  # verl's own is flash attention
    if trained.strategy == "fsdp":
        trained.strategy = "fsdp2"  # FSDP 1 wants its weights on a GPU
    elif trained.strategy == "megatron":
        model.use_remove_padding = False  # only TransformerEngine's attention takes sequences without padding
        trained.megatron.vanilla_mbridge = True  # the other bridge, Megatron-Bridge, needs TransformerEngine
        layers = trained.megatron.override_transformer_config
        layers.sequence_parallel = False  # torch's norms can't, and mbridge turns it on for tensor parallel
        layers.masked_softmax_fusion = False  # a kernel of Apex, taken for bfloat16


def _rollout(rollout: Any) -> None:
    rollout.enforce_eager = True  # vLLM would compile the model: that needs a C++ compiler, and minutes
    rollout.free_cache_engine = False  # vLLM can't sleep on this platform
    rollout.enable_sleep_mode = False
    engine = rollout.engine_kwargs.get("vllm") or {}
    rollout.engine_kwargs.vllm = {"kv_cache_memory_bytes": _CACHE_BYTES, **engine}  # else half of the machine's memory
