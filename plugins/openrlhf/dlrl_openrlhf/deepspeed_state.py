"""What a commit holds of a DeepSpeed rank: the trees of DeepSpeed's own checkpoint, the average, the random states.

All tensors are named where they are, on the device or, while the optimizer sleeps, on the host.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from deepspeed.runtime.zero.stage_1_and_2 import INITIAL_MICRO_STEP_ID, DeepSpeedZeroOptimizer
from openrlhf.utils.deepspeed.deepspeed_utils import offload_deepspeed_states, reload_deepspeed_states

from dlrl_adapter_kit.torch_state import capture_tree, tree_of
from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_openrlhf.deepspeed_trees import load_trees, model_file, saved_trees

_PARTITIONED = 3
"""The stage of ZeRO that divides the parameters too: each rank has its own part of the model."""


def capture(engine: Any, *, ema: Any = None) -> CapturedState:
    """This rank's state, by reference. All ranks of the role call it at once.

    Raises DlrlError for an optimizer whose state is not known.
    """
    tree = {"files": saved_trees(engine), "micro_steps": engine.micro_steps, "random": _random_states()}
    if ema is not None:
        tree["ema"] = {"module": _unwrapped(ema).state_dict(), "parts": _parts(ema)}
    alike = {} if _has_own_part(engine) else _alike(engine, ema)
    return capture_tree(tree, alike=alike.get)


def restore(engine: Any, saved: SavedState, *, ema: Any = None, sleeps: bool = False) -> None:
    """Go back to a captured state, in a new process or in the one that captured it. All ranks call it at once.

    `sleeps`: between its calls the optimizer's state is in the memory of the host, as '--ds.enable_sleep' says.
    """
    tree = tree_of(saved)
    if sleeps:
        reload_deepspeed_states(engine)
    load_trees(engine, tree["files"])
    _forget_gradients(engine)
    engine.micro_steps = tree["micro_steps"]
    if sleeps:
        offload_deepspeed_states(engine)
    if ema is not None:
        _load_average(ema, tree["ema"])
    _set_random_states(tree["random"])


# ---- the engine


def _has_own_part(engine: Any) -> bool:
    return bool(engine.zero_optimization_stage() == _PARTITIONED or engine.autotp_size() > 1)


def _alike(engine: Any, ema: Any) -> dict[str, str]:
    """The paths of tensors that all ranks hold alike, each with a name: of what is trained, and of its average.

    Other tensors of the module, such as running means, may be each rank's own.
    """
    trained = [name for name, parameter in engine.module.named_parameters() if parameter.requires_grad]
    paths = [f"files.{model_file(engine)}.module.{name}" for name in trained]
    if ema is not None:
        paths += [f"ema.module.{name}" for name, _ in _unwrapped(ema).named_parameters()]
    return {path: path for path in paths}


def _forget_gradients(engine: Any) -> None:
    """Those of a backward pass that no step followed, in a process that goes on."""
    optimizer = engine.optimizer
    optimizer.zero_grad()
    if isinstance(optimizer, DeepSpeedZeroOptimizer):
        optimizer.micro_step_id = INITIAL_MICRO_STEP_ID
        for gradients in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
            gradients.update(dict.fromkeys(gradients))


# ---- the moving average


def _load_average(ema: Any, saved: dict[str, Any]) -> None:
    _unwrapped(ema).load_state_dict(saved["module"])
    for name, part in _parts(ema).items():
        part.data.copy_(saved["parts"][name])


def _parts(model: Any) -> dict[str, Any]:
    """With ZeRO-3, what this rank holds of each parameter; of most of them, the module's own state is empty."""
    return {name: one.ds_tensor for name, one in _unwrapped(model).named_parameters() if hasattr(one, "ds_tensor")}


def _unwrapped(model: Any) -> Any:
    return model.model.module if hasattr(model.model, "module") else model.model


# ---- random states


def _random_states() -> dict[str, Any]:
    """OpenRLHF's checkpoints leave these out; with them, a step that is done again is the same."""
    states = {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
