"""The state of optimizers that dlrl knows: all others are refused by name, since half of a state may be elsewhere.

Megatron's hybrid optimizer (`optimizer_cpu_offload`) has optimizers within it, some for copies of weights on the host.
These copies win at its next step, so they are the state; its own moments are views of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch

from dlrl_core.errors import DlrlError
from dlrl_verl.state_tensors import HOST, copy_into, fits, local, storage_of

_MEGATRON = "megatron.core.optimizer"
_CHAINED = f"{_MEGATRON}.optimizer.ChainedOptimizer"
_SHARDED = f"{_MEGATRON}.distrib_optimizer.DistributedOptimizer"
_HYBRID = f"{_MEGATRON}.cpu_offloading.hybrid_optimizer.HybridDeviceOptimizer"
_COPY_OF_PARAM = "master_param"
"""Among the moments of an optimizer within a hybrid one: the parameter itself, or verl's copy of it."""
_WRAPPERS = {
    _SHARDED,
    f"{_MEGATRON}.optimizer.Float16OptimizerWithFloat16Params",
    f"{_MEGATRON}.optimizer.FP32Optimizer",
}
_KNOWN = {
    "torch.optim.adam.Adam",
    "torch.optim.adamw.AdamW",
    "torch.optim.sgd.SGD",
    "apex.optimizers.fused_adam.FusedAdam",
    "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam",
}
"""Exact classes: all that they know is in `param_groups`, `state` and, of TransformerEngine's, `_scales`."""


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """One optimizer of torch's kind, and Megatron's around it, if there is one."""

    inner: torch.optim.Optimizer
    wrapper: Any = None
    is_sharded: bool = False
    """Whether data-parallel ranks have different parts of its state."""
    within: Any = None
    """The hybrid optimizer that it is a part of."""

    @property
    def weights(self) -> str:
        """The part of the weights that it trains."""
        is_expert = any(group.get("is_expert_parallel", False) for group in self.inner.param_groups)
        return "expert" if is_expert else "dense"

    @property
    def is_hybrid(self) -> bool:
        return class_name(self.inner) == _HYBRID

    def options_of(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """All but classes, which a hybrid optimizer is made with, and what it sets in those within it at each step."""
        known = self.within.param_groups[0] if self.within is not None else {"params"}
        return {key: value for key, value in group.items() if key not in known and not isinstance(value, type)}

    def moments_of(self, param: Any) -> dict[str, Any]:
        if self.is_hybrid:
            return {}
        moments = self.inner.state.get(param, {})
        return {key: one for key, one in moments.items() if self.within is None or key != _COPY_OF_PARAM}


def parts_of(optimizer: Any) -> list[OptimizerPart]:
    """All of them. Raises DlrlError with the class of one whose state is not known."""
    if optimizer is None:
        return []
    name = class_name(optimizer)
    if name == _CHAINED:
        return [part for one in optimizer.chained_optimizers for part in parts_of(one)]
    if name not in _WRAPPERS:
        return [OptimizerPart(inner=_known(optimizer))]
    inner, is_sharded = optimizer.optimizer, name == _SHARDED
    if inner is None:  # a rank without trained weights
        return []
    if class_name(inner) != _HYBRID:
        return [OptimizerPart(inner=_known(inner), wrapper=optimizer, is_sharded=is_sharded)]
    subs = [OptimizerPart(inner=_known(one), within=inner, is_sharded=is_sharded) for one in inner.sub_optimizers]
    return [OptimizerPart(inner=inner, wrapper=optimizer, is_sharded=is_sharded), *subs]


def class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _known(optimizer: Any) -> torch.optim.Optimizer:
    name = class_name(optimizer)
    if name not in _KNOWN:
        raise DlrlError(
            f"a commit can't hold the state of optimizer '{name}', whose layout dlrl does not know; "
            f"use one of: {', '.join(sorted(_KNOWN))}"
        )
    if getattr(optimizer, "param_groups_master", None) is not None:
        raise DlrlError(f"a commit can't hold the state of optimizer '{name}' with master_weights=True of its own")
    known: torch.optim.Optimizer = optimizer
    return known


def is_loaded(parts: list[OptimizerPart]) -> bool:
    """Whether a moment is on a device; counts of steps may be there always."""
    moments = [value for part in parts for held in part.inner.state.values() for value in held.values()]
    return any(isinstance(one, torch.Tensor) and one.ndim and one.device.type != HOST for one in moments)


def replicas_of(parts: list[OptimizerPart], of_weights: Mapping[str, str]) -> dict[str, str]:
    """For the place of each optimizer whose state several ranks hold alike, the name that their weights have."""
    names = {index: of_weights.get(f"weights.{part.weights}.") for index, part in enumerate(parts)}
    return {f"optimizers[{index}].": name for index, name in names.items() if name and not parts[index].is_sharded}


# ---- one optimizer as a tree


def tree_of_part(part: OptimizerPart, *, within: AbstractSet[int]) -> dict[str, Any]:
    """Its state by reference. Parameters in storages of the weights are left out; others are Megatron's own copies."""
    scaler = getattr(part.wrapper, "grad_scaler", None)
    return {
        "class": class_name(part.inner),
        "groups": [_group_tree(part, group) for group in part.inner.param_groups],
        "masters": _masters(part, within),
        "scaler": None if scaler is None else scaler.state_dict(),
    }


def _group_tree(part: OptimizerPart, group: dict[str, Any]) -> dict[str, Any]:
    scales = getattr(part.inner, "_scales", {})
    held = [part.moments_of(param) for param in group["params"]]
    return {
        "options": part.options_of(group),
        "moments": [{key: _plain(value) for key, value in one.items()} for one in held],
        "on_host": [[key for key, value in one.items() if _is_on_host(value)] for one in held],
        "scales": [dict(scales.get(param, {})) for param in group["params"]],
    }


def _plain(value: Any) -> Any:
    return local(value) if isinstance(value, torch.Tensor) else value


def _is_on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == HOST


def _masters(part: OptimizerPart, within: AbstractSet[int]) -> dict[str, torch.Tensor]:
    """Weights that the optimizer has in its own memory, by their group and place in it.

    Only Megatron's have any. Others are told all parameters of the model, the frozen ones of LoRA too.
    """
    if part.wrapper is None and part.within is None:
        return {}
    params = {
        f"{index}.{place}": local(param)
        for index, group in enumerate(part.inner.param_groups)
        for place, param in enumerate(group["params"])
    }
    return {name: one for name, one in params.items() if one.numel() and storage_of(one) not in within}


# ---- and back


def restore_parts(parts: list[OptimizerPart], trees: list[Any], *, within: AbstractSet[int]) -> None:
    """Set the state of all of them to the trees, on the devices where the commit had it."""
    for part, tree in zip(parts, trees, strict=True):
        _restore_part(part, tree, within)
    for part in parts:
        if part.is_hybrid:
            part.inner._sync_sub_optimizers_state_to_hdo()


def _restore_part(part: OptimizerPart, tree: Mapping[str, Any], within: AbstractSet[int]) -> None:
    if tree["class"] != class_name(part.inner):
        raise DlrlError(f"the commit has an optimizer '{tree['class']}', this process '{class_name(part.inner)}'")
    copy_into(_masters(part, within), tree["masters"], what="optimizer.masters")
    for group, saved in zip(part.inner.param_groups, tree["groups"], strict=True):
        _restore_group(part.inner, group, saved)
    if tree["scaler"] is not None:
        part.wrapper.grad_scaler.load_state_dict(tree["scaler"])


def _restore_group(optimizer: torch.optim.Optimizer, group: dict[str, Any], saved: Mapping[str, Any]) -> None:
    device = _device_of(group)
    for key, value in saved["options"].items():
        group[key] = value.to(device, copy=True) if isinstance(value, torch.Tensor) else value
    scales = getattr(optimizer, "_scales", {})
    of_params = zip(group["params"], saved["moments"], saved["on_host"], saved["scales"], strict=True)
    for param, moments, on_host, of_moments in of_params:
        held = optimizer.state.pop(param, {})
        if moments:
            optimizer.state[param] = {
                key: _moment(param, value, torch.device(HOST) if key in on_host else device, held.get(key))
                for key, value in moments.items()
            }
        if of_moments:
            scales[param] = {key: value.to(device, copy=True) for key, value in of_moments.items()}


def _device_of(group: dict[str, Any]) -> torch.device:
    """Where the optimizer computes: the weights themselves may be offloaded."""
    if torch.cuda.is_available() and group["params"]:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(HOST)


def _moment(param: Any, saved: Any, on: torch.device, held: Any) -> Any:
    """A moment as the optimizer keeps it, spread over ranks as its parameter is; counts of steps are not spread."""
    if not isinstance(saved, torch.Tensor):
        return saved
    if fits(held, saved, on):
        local(held).copy_(saved)
        return held
    if saved.ndim == 0 or not hasattr(param, "to_local"):
        return saved.to(on, copy=True)
    spread = torch.empty_like(param.detach(), dtype=saved.dtype, device=on)
    local(spread).copy_(saved)
    return spread
