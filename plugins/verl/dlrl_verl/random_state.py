"""Random states of this process: Python's, numpy's, torch's, and Megatron's."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch


def current() -> dict[str, Any]:
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if tracker := _megatron_tracker():
        states["megatron"] = dict(tracker.get_states())  # it replaces these tensors, and never writes to them
    return states


def set_to(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    if "megatron" in states:
        _megatron_tracker().set_states({name: state.clone() for name, state in states["megatron"].items()})


def _megatron_tracker() -> Any:
    """Megatron's own random states, one for each kind of parallelism."""
    if "megatron.core.tensor_parallel" not in sys.modules:
        return None
    return sys.modules["megatron.core.tensor_parallel"].get_cuda_rng_tracker()
