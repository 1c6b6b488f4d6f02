"""What a commit holds of a DeepSpeed rank: DeepSpeed's own checkpoint, whole by itself, and the random states.

A checkpoint of DeepSpeed is one folder for all ranks, on storage that all of them reach. A commit is kept in each
rank's own memory first, so each rank writes a folder of its own with all that it needs itself.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

_TAG = "commit"
_RANDOM = "random.pt"
_EMA = "ema.pt"


def save(engine: Any, path: str, *, ema: Any = None) -> None:
    """Write this rank's part. All ranks of the role call it at once."""
    is_writer, engine.save_non_zero_checkpoint = engine.save_non_zero_checkpoint, True
    try:
        (Path(path) / _TAG).mkdir(parents=True, exist_ok=True)
        engine.save_checkpoint(path, tag=_TAG, save_latest=False)
    finally:
        engine.save_non_zero_checkpoint = is_writer
    _name_as_first(engine, path)
    torch.save(_random_states(), Path(path) / _RANDOM)
    if ema is not None:
        torch.save(_unwrapped(ema).state_dict(), Path(path) / _EMA)


def load(engine: Any, path: str, *, ema: Any = None) -> None:
    """Go back to what `save` wrote, in a new process or in the one that wrote it. All ranks call it at once."""
    found, _ = engine.load_checkpoint(path, tag=_TAG)
    if found is None:
        raise FileNotFoundError(f"there is no DeepSpeed checkpoint in '{path}'")
    if ema is not None:
        _unwrapped(ema).load_state_dict(torch.load(Path(path) / _EMA, weights_only=True))
    _set_random_states(torch.load(Path(path) / _RANDOM, weights_only=False))


def _name_as_first(engine: Any, path: str) -> None:
    """With ZeRO-3 each rank loads its partitions from its own file, but asks for rank 0's to know the rest."""
    first = Path(engine._get_ckpt_name(path, _TAG, pp_placeholder="0"))
    own = Path(engine._get_ckpt_name(path, _TAG))
    if own != first:
        first.unlink(missing_ok=True)
        first.hardlink_to(own)


def _unwrapped(model: Any) -> Any:
    return model.model.module if hasattr(model.model, "module") else model.model


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
