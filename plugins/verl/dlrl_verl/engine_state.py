"""What a commit holds of one rank of a model engine, Megatron or FSDP: its own tensors, as they lie in its memory.

verl's checkpoints are one folder for all ranks, on storage that all of them reach, in a layout that other world sizes
can read. A commit is kept by each rank for itself and is loaded into the same layout, so nothing has to be exchanged
for it. What users ask verl to save is saved by verl.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

_FILE = "engine.pt"


def save(engine: Any, path: str) -> None:
    """Write this rank's part."""
    with _loaded(engine):
        state = {
            "modules": [_tensors(module) for module in _modules(engine)],
            "optimizers": [_optimizer_state(one) for one in _optimizers(engine)],
            "scheduler": _scheduler_state(engine.lr_scheduler),
            "random": _random_states(),
        }
        torch.save(state, Path(path) / _FILE)


def load(engine: Any, path: str) -> None:
    """Go back to what `save` wrote, in a new process or in the one that wrote it."""
    state = torch.load(Path(path) / _FILE, weights_only=False, map_location="cpu")
    with _loaded(engine), torch.no_grad():
        for module, saved in zip(_modules(engine), state["modules"], strict=True):
            for name, tensor in _tensors(module).items():
                tensor.copy_(saved[name])
        for optimizer, saved in zip(_optimizers(engine), state["optimizers"], strict=True):
            _load_optimizer(optimizer, saved)
        _load_scheduler(engine.lr_scheduler, state["scheduler"])
    _set_random_states(state["random"])


@contextlib.contextmanager
def _loaded(engine: Any) -> Iterator[None]:
    """What verl has moved away from the device between two calls is there."""
    told = {"model": engine._is_offload_param, "optimizer": engine._is_offload_optimizer, "grad": False}
    if not (told["model"] or told["optimizer"]):
        yield
        return
    from verl.utils.device import get_device_name

    engine.to(device=get_device_name(), **told)
    try:
        yield
    finally:
        engine.to(device="cpu", **told)


# ---- tensors


def _local(tensor: Any) -> Any:
    """This rank's part of a tensor that may be spread over ranks."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _modules(engine: Any) -> list[Any]:
    return list(engine.module) if isinstance(engine.module, list | tuple) else [engine.module]


def _tensors(module: Any) -> dict[str, Any]:
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: _local(tensor.detach()) for name, tensor in named}


# ---- optimizers


def _optimizers(engine: Any) -> list[torch.optim.Optimizer]:
    """torch's own, which Megatron wraps once or twice."""
    if engine.optimizer is None:
        return []
    chained = getattr(engine.optimizer, "chained_optimizers", [engine.optimizer])
    return [one if isinstance(one, torch.optim.Optimizer) else one.optimizer for one in chained]


def _optimizer_state(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [
        {
            "options": {key: value for key, value in group.items() if key != "params"},
            "params": [_local(param.detach()) for param in group["params"]],
            "moments": [
                {key: _local(value) for key, value in optimizer.state.get(param, {}).items()}
                for param in group["params"]
            ],
        }
        for group in optimizer.param_groups
    ]


def _load_optimizer(optimizer: torch.optim.Optimizer, saved_groups: list[dict[str, Any]]) -> None:
    for group, saved in zip(optimizer.param_groups, saved_groups, strict=True):
        group.update(saved["options"])
        for param, tensor, moments in zip(group["params"], saved["params"], saved["moments"], strict=True):
            _local(param.detach()).copy_(tensor)
            optimizer.state.pop(param, None)
            if moments:
                optimizer.state[param] = {key: _like(param, value) for key, value in moments.items()}


def _like(param: Any, value: Any) -> Any:
    """A moment as the optimizer keeps it: where its parameter is, and spread as that is."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0:  # a count of steps, which torch keeps where it was made
        return value
    if not hasattr(param, "to_local"):
        return value.to(param.device)
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        value.to(param.device), param.device_mesh, param.placements, shape=param.shape, stride=param.stride()
    )


# ---- schedule and chance


def _scheduler_state(scheduler: Any) -> Any:
    if scheduler is None:
        return None
    return scheduler.num_steps if hasattr(scheduler, "num_steps") else scheduler.state_dict()


def _load_scheduler(scheduler: Any, state: Any) -> None:
    if scheduler is None:
        return
    if hasattr(scheduler, "num_steps"):  # Megatron's would add what it loads to what it has
        scheduler.num_steps = state
        scheduler.step(increment=0)
    else:
        scheduler.load_state_dict(state)


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if tracker := _megatron_tracker():
        states["megatron"] = tracker.get_states()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    if "megatron" in states:
        _megatron_tracker().set_states(states["megatron"])


def _megatron_tracker() -> Any:
    """Megatron's own random states, one for each kind of parallelism."""
    if "megatron.core.tensor_parallel" not in sys.modules:
        return None
    return sys.modules["megatron.core.tensor_parallel"].get_cuda_rng_tracker()
