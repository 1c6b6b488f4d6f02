"""Megatron without CUDA, TransformerEngine and Apex: tensor, pipeline and data parallel over gloo."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from dlrl_adapter_kit.after_import import after_import
from dlrl_verl.cpu.device import CPU_AS_CUDA

_MAKERS = ("tensor", "zeros", "ones", "empty", "empty_like")


def prepare_megatron() -> None:
    """Nothing happens before Megatron is imported."""
    after_import("megatron.core.*", _torch_without_cuda)
    after_import("mbridge.core.*", _torch_without_cuda)
    after_import("megatron.core", lambda _: _tensors_of_cuda())
    after_import("megatron.core.tensor_parallel.random", _random_state)
    after_import("megatron.core.transformer.dot_product_attention", _mask_of_padding)
    after_import("megatron.core.optimizer.distrib_optimizer", _adam_of_torch)
    after_import("mbridge.core.llm_bridge", _local_layers)
    after_import("mbridge.core.bridge", _names_of_norms)
    after_import("verl.workers.config.engine", _float32)
    after_import("verl.utils.megatron_utils", _memory_not_pinned)


# ---- calls of CUDA


class _TorchWithoutCuda(types.ModuleType):
    """torch, but for the names that lead to CUDA."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = CPU_AS_CUDA
        for name in _MAKERS:
            setattr(self, name, _on_cpu(getattr(torch, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> Any:
        return make(*args, device="cpu" if device == "cuda" else device, **kwargs)

    return made


_TORCH = _TorchWithoutCuda()


def _torch_without_cuda(module: Any) -> None:
    """Megatron makes tensors on 'cuda' and asks torch.cuda, by these names. Its modules, and only they, see another."""
    if vars(module).get("torch") is torch:
        module.torch = _TORCH


def _memory_not_pinned(module: Any) -> None:
    """verl offloads weights of Megatron to pinned memory, which only a GPU has a use for."""
    module.torch = _TORCH


def _tensors_of_cuda() -> None:
    """Megatron moves tensors with `.cuda()`, and its optimizer takes weights whose type is 'torch.cuda.FloatTensor'."""
    stock = torch.Tensor.type

    def type_of(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = stock(self, *args, **kwargs)
        return f"torch.cuda.{answer.removeprefix('torch.')}" if isinstance(answer, str) else answer

    torch.Tensor.type = type_of
    torch.Tensor.cuda = lambda self, *_, **__: self


def _random_state(module: Any) -> None:
    """Megatron gives weights of each rank a random state of their own, and sets it in a generator of CUDA."""
    module._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)


# ---- layers of Megatron's own in the place of TransformerEngine's


def _local_layers(module: Any) -> None:
    """mbridge builds every model of TransformerEngine's layers, which need CUDA."""
    stock = module.get_gpt_decoder_block_spec

    def get_gpt_decoder_block_spec(config: Any, *_: Any, use_transformer_engine: bool = False, **kwargs: Any) -> Any:
        return stock(config, use_transformer_engine=False, normalization=config.normalization, **kwargs)

    module.get_gpt_decoder_block_spec = get_gpt_decoder_block_spec


def _names_of_norms(module: Any) -> None:
    """TransformerEngine has each norm within the layer after it; here they are modules, which mbridge can't name."""
    bridge = module.Bridge
    of_mlp, of_others = bridge._weight_name_mapping_mlp, bridge._weight_name_mapping_other

    def mlp(self: Any, name: str) -> list[str]:
        if ".pre_mlp_layernorm." in name:
            return [f"model.layers.{name.split('.')[2]}.post_attention_layernorm.weight"]
        return of_mlp(self, name)  # type: ignore[no-any-return]

    def other(self: Any, name: str) -> list[str]:
        if ".input_layernorm." in name:
            return [f"model.layers.{name.split('.')[2]}.input_layernorm.weight"]
        return of_others(self, name)  # type: ignore[no-any-return]

    bridge._weight_name_mapping_mlp, bridge._weight_name_mapping_other = mlp, other


def _mask_of_padding(module: Any) -> None:
    """verl's mask tells TransformerEngine which tokens are padding, on the right. Megatron's own attention takes
    a mask of pairs; with none it is causal, and then no token sees what is on its right.
    """
    stock = module.DotProductAttention.forward

    def forward(self: Any, query: Any, key: Any, value: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
        is_of_pairs = attention_mask is not None and attention_mask.dim() == 4
        return stock(self, query, key, value, attention_mask if is_of_pairs else None, *args, **kwargs)

    module.DotProductAttention.forward = forward


# ---- Adam of torch in the place of Apex's


def _adam_of_torch(module: Any) -> None:
    """Apex counts the steps of all weights once, torch's Adam for each weight. Megatron saves one number, but
    can't load it into a new optimizer, which has none yet; and what it loads, it then overwrites.
    """
    optimizer = module.DistributedOptimizer
    state_dict, load_state_dict = optimizer.state_dict, optimizer.load_state_dict
    set_states = optimizer._set_main_param_and_optimizer_states

    def state_dict_of_any(self: Any, *args: Any, **kwargs: Any) -> Any:
        _fill_empty_state(self.optimizer)
        return state_dict(self, *args, **kwargs)

    def load_with_step(self: Any, state: Any, *args: Any, **kwargs: Any) -> None:
        with torch.no_grad():
            load_state_dict(self, state, *args, **kwargs)
        _set_step(self.optimizer, state)

    def set_states_with_step(self: Any, model_param: Any, tensors: Any) -> None:
        group, order = self.model_param_group_index_map[model_param]
        held = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        set_states(self, model_param, {"step": held["step"], **tensors})

    optimizer.state_dict, optimizer.load_state_dict = state_dict_of_any, load_with_step
    optimizer._set_main_param_and_optimizer_states = set_states_with_step


def _fill_empty_state(adam: Any) -> None:
    if adam is None or adam.state:
        return
    for group in adam.param_groups:
        for weight in group["params"]:
            adam.state[weight] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }


def _set_step(adam: Any, state: Any) -> None:
    steps = {group["step"] for group in state["optimizer"]["param_groups"] if "step" in group}
    if len(steps) == 1:
        (step,) = steps
        for held in adam.state.values():
            held["step"] = torch.tensor(float(step))


# ---- float32


def _float32(module: Any) -> None:
    """verl's Megatron engine refuses float32. On a CPU it is as fast as bfloat16, and exact enough to compare runs."""
    stock = module.McoreEngineConfig.__post_init__

    def check_as_bfloat16(self: Any) -> None:
        wanted = self.dtype
        if wanted == "float32":
            object.__setattr__(self, "dtype", "bfloat16")
        stock(self)
        object.__setattr__(self, "dtype", wanted)

    module.McoreEngineConfig.__post_init__ = check_as_bfloat16
