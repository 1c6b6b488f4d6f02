"""Where the weights of a model engine lie between two calls: of FSDP 1, FSDP 2 and Megatron, on a device or offloaded.

Weights that are not trained are those of the pretrained model, which every process loads by itself, and are left out.
A critic keeps them: its value head is new, may be frozen by LoRA, and no checkpoint has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from dlrl_core.errors import DlrlError
from dlrl_verl.state_tensors import HOST, local, storage_of


@dataclass(frozen=True, kw_only=True)
class EngineWeights:
    """This rank's plain tensors."""

    parts: dict[str, dict[str, torch.Tensor]]
    """By name: 'dense', and 'expert' for those that experts are spread by."""
    buffers: dict[str, torch.Tensor]
    storages: frozenset[int]
    """Of the weights, on the device too while they are offloaded: an optimizer may have views of them."""
    is_loaded: bool
    """Whether some are on the device."""
    replicas: dict[str, str] = field(default_factory=dict)
    """Where in a commit's tree ranks hold the same, and the name of it: the same on all ranks that do."""


def weights_of(engine: Any) -> EngineWeights:
    """Raises DlrlError with the name of what dlrl does not know where to find."""
    strategy = engine.engine_config.strategy
    if strategy == "megatron":
        return _megatron(engine)
    if strategy in ("fsdp", "fsdp2", "fsdp_turbo", "veomni"):
        return _fsdp(engine)
    raise DlrlError(
        f"a commit can't hold the state of verl's engine '{strategy}'; dlrl knows those of FSDP and Megatron"
    )


def _is_kept(engine: Any, param: Any) -> bool:
    return bool(param.requires_grad) or engine.model_config.model_type == "value_model"


# ---- FSDP


def _fsdp(engine: Any) -> EngineWeights:
    from torch.distributed.fsdp import FullyShardedDataParallel

    module = engine.module
    is_first = isinstance(module, FullyShardedDataParallel)
    params = dict(_flat_shards(engine) if is_first else _sharded(engine))
    return EngineWeights(
        parts={"dense": params},
        buffers={name: local(buffer) for name, buffer in module.named_buffers()},
        storages=frozenset(storage_of(one) for one in params.values()),
        is_loaded=any(one.device.type != HOST for one in params.values()),
        replicas=_fsdp_replicas(engine),
    )


def _fsdp_replicas(engine: Any) -> dict[str, str]:
    """With a `fsdp_size`, each shard is on several ranks. Other engines on FSDP may spread experts by other meshes."""
    if engine.engine_config.strategy not in ("fsdp", "fsdp2"):
        return {}
    mesh = engine.device_mesh
    if mesh.ndim != 2 or mesh.size(0) == 1:
        return {}
    return {"weights.dense.": f"shard-{mesh.get_local_rank('fsdp')}"}


def _sharded(engine: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """After a forward pass without a backward one, FSDP 2 has the root's parameters whole; the shards are the state."""
    from torch.distributed.fsdp import FSDPModule

    for module in engine.module.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    for name, param in engine.module.named_parameters():
        if _is_kept(engine, param):
            yield name, local(param)


def _flat_shards(engine: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """FSDP 1 has a flat parameter for each of its units, and keeps the root's whole after a forward pass: the next one
    would take that for the weights, whatever the shard is by then.
    """
    from torch.distributed.fsdp._runtime_utils import _lazy_init

    _lazy_init(engine.module, engine.module)  # as verl's offloading does: before it, there are no shards
    for index, handle in enumerate(engine.module._all_handles):
        if handle.uses_sharded_strategy:
            handle.reshard(True)
        flat = handle.flat_param
        if _is_kept(engine, flat):
            yield f"{index}.{flat._fqns[0]}", flat._local_shard


# ---- Megatron


def _megatron(engine: Any) -> EngineWeights:
    parts: dict[str, dict[str, torch.Tensor]] = {"dense": {}, "expert": {}}
    buffers: dict[str, torch.Tensor] = {}
    device_storages: set[int] = set()
    is_loaded = False
    for number, chunk in enumerate(engine.module):
        _check_megatron(engine, chunk)
        for part, name, whole in _flat_weights(chunk):
            is_awake = whole.untyped_storage().nbytes() > 0
            parts[part][f"{number}.{name}"] = whole if is_awake else whole.cpu_data
            device_storages.add(storage_of(whole))
            is_loaded |= is_awake
        for name, param in chunk.named_parameters():
            if storage_of(param.detach()) not in device_storages and _is_kept(engine, param):
                part = "dense" if getattr(param, "allreduce", True) else "expert"
                parts[part][f"{number}.{name}"] = param.detach()
        buffers |= {f"{number}.{name}": buffer for name, buffer in chunk.named_buffers()}
    own = {storage_of(one) for tensors in parts.values() for one in tensors.values()}
    return EngineWeights(
        parts=parts,
        buffers=buffers,
        storages=frozenset(own | device_storages),
        is_loaded=is_loaded,
        replicas=_megatron_replicas(),
    )


def _flat_weights(chunk: Any) -> Iterator[tuple[str, str, Any]]:
    """With the distributed optimizer, all trained parameters are views of a few flat tensors. Offloading copies these
    to `cpu_data`, and resizes their storage, and so that of all the views, to nothing.
    """
    for part, flat_buffers in (("dense", chunk.buffers), ("expert", chunk.expert_parallel_buffers)):
        for index, buffer in enumerate(flat_buffers):
            if buffer.param_data is not None:
                yield part, str(index), buffer.param_data


def _check_megatron(engine: Any, chunk: Any) -> None:
    ddp = chunk.ddp_config
    if ddp.use_megatron_fsdp:
        raise DlrlError("a commit can't hold the state of Megatron's own FSDP; leave out 'megatron.use_megatron_fsdp'")
    if ddp.overlap_param_gather:
        raise DlrlError(
            "with 'overlap_param_gather', ranks have each other's weights only during the next step, so a commit "
            "can't hold them; leave it out"
        )
    if getattr(engine.tf_config, "fp8", None) and engine.tf_config.fp8_recipe == "delayed":
        raise DlrlError("a commit can't hold the scaling history of 'fp8_recipe=delayed'; use another recipe")
    for name, param in chunk.named_parameters():
        if type(param.detach()) is not torch.Tensor:
            raise DlrlError(
                f"a commit can't hold parameter '{name}': it is a {type(param).__name__}, not a plain tensor"
            )


def _megatron_replicas() -> dict[str, str]:
    """Data-parallel ranks have the same weights; tensor, pipeline and expert parallel ones have different ones."""
    from megatron.core import parallel_state as ranks

    replicas = {}
    stage = f"pp-{ranks.get_pipeline_model_parallel_rank()}"
    if ranks.get_data_parallel_world_size(with_context_parallel=True) > 1:
        replicas["weights.dense."] = f"{stage}.tp-{ranks.get_tensor_model_parallel_rank()}"
    if ranks.get_expert_data_parallel_world_size() > 1:
        tensor, expert = ranks.get_expert_tensor_parallel_rank(), ranks.get_expert_model_parallel_rank()
        replicas["weights.expert."] = f"{stage}.etp-{tensor}.ep-{expert}"
    return replicas
