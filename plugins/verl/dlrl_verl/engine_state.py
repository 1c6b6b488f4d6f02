"""What a commit holds of one rank of a model engine, Megatron or FSDP: its own tensors, as they lie in its memory.

verl's checkpoints are one folder for all ranks, on storage that all of them reach, in a layout that other world sizes
can read. A commit is kept by each rank for itself and is restored into the same layout, so nothing has to be exchanged
for it, and nothing is loaded onto a device: what verl offloads is captured from the host, and restored there.
"""

from __future__ import annotations

from typing import Any

import torch

from dlrl_adapter_kit.torch_state import capture_tree, tree_of
from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_verl import optimizer_state, random_state
from dlrl_verl.engine_weights import EngineWeights, weights_of
from dlrl_verl.state_tensors import copy_into


def capture(engine: Any) -> CapturedState:
    """This rank's part, by reference. Raises DlrlError for an engine or optimizer whose state dlrl does not know."""
    parts = optimizer_state.parts_of(engine.optimizer)
    with torch.no_grad():
        weights = _at_rest(engine, parts)
        tree = {
            "weights": weights.parts,
            # Copied: they are small, and a forward pass may change one, as that of a rotary embedding which grows.
            "buffers": {name: buffer.clone() for name, buffer in weights.buffers.items()},
            "optimizers": [optimizer_state.tree_of_part(part, within=weights.storages) for part in parts],
            "scaler": _scaler_state(engine),
            "scheduler": _scheduler_state(engine.lr_scheduler),
            "random": random_state.current(),
        }
    replicas = weights.replicas | optimizer_state.replicas_of(parts, weights.replicas)

    def alike(path: str) -> str | None:
        return next((f"{where}/{path}" for part, where in replicas.items() if path.startswith(part)), None)

    return capture_tree(tree, alike=alike)


def restore(engine: Any, saved: SavedState) -> None:
    """Go back to what `capture` named, in a new process or in the one that captured it."""
    tree = tree_of(saved)
    parts = optimizer_state.parts_of(engine.optimizer)
    with torch.no_grad():
        weights = _at_rest(engine, parts)
        for part, tensors in weights.parts.items():
            copy_into(tensors, tree["weights"][part], what=f"weights.{part}")
        copy_into(weights.buffers, tree["buffers"], what="buffers")
        optimizer_state.restore_parts(parts, tree["optimizers"], within=weights.storages)
    if tree["scaler"] is not None:
        engine.scaler.load_state_dict(tree["scaler"])
    _restore_scheduler(engine.lr_scheduler, tree["scheduler"])
    _forget_derived(engine)
    random_state.set_to(tree["random"])


def _at_rest(engine: Any, parts: list[optimizer_state.OptimizerPart]) -> EngineWeights:
    """The weights where verl keeps them between two calls.

    A manual `to` may have left them on the device of an engine that is told to offload. They are then offloaded here,
    since the next call would do so and free the memory that was captured.
    """
    weights = weights_of(engine)
    model = engine._is_offload_param and weights.is_loaded
    optimizer = engine._is_offload_optimizer and optimizer_state.is_loaded(parts)
    if model or optimizer:
        engine.to(device="cpu", model=model, optimizer=optimizer, grad=model)
        weights = weights_of(engine)
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # verl offloads without waiting for the copy; the host may not read it before
    return weights


# ---- scaler, schedule, and what is derived from weights


def _scaler_state(engine: Any) -> Any:
    """Of fp16 on FSDP. Megatron's is part of its optimizer."""
    scaler = getattr(engine, "scaler", None)
    return None if scaler is None else scaler.state_dict()


def _scheduler_state(scheduler: Any) -> Any:
    """torch's own leaves out the function of a LambdaLR, which verl makes of the config again."""
    if scheduler is None:
        return None
    return scheduler.num_steps if hasattr(scheduler, "num_steps") else scheduler.state_dict()


def _restore_scheduler(scheduler: Any, state: Any) -> None:
    if scheduler is None:
        return
    if hasattr(scheduler, "num_steps"):  # Megatron's would add what it loads to what it has
        scheduler.num_steps = state
        scheduler.step(increment=0)
    else:
        scheduler.load_state_dict(state)


def _forget_derived(engine: Any) -> None:
    """Quantization-aware training on FSDP keeps scales of the weights; verl forgets them after each step too."""
    if getattr(engine, "_qat_enabled", False) and engine.engine_config.strategy != "megatron":
        from verl.utils.qat.core import invalidate_all_scales

        invalidate_all_scales(engine.module)
