"""What a commit holds of a DeepSpeed rank: DeepSpeed's own checkpoint, whole by itself, and the random states.

A checkpoint of DeepSpeed is one folder for all ranks, on storage that all of them reach. A commit is kept in each
rank's own memory first, so each rank has a folder of its own with all that it needs itself.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openrlhf.utils.deepspeed.deepspeed_utils import offload_deepspeed_states, reload_deepspeed_states

_TAG = "commit"
_RANDOM = "random.pt"
_EMA = "ema.pt"
_PARTITIONED = 3
"""The stage of ZeRO that divides the parameters too: each rank's file of the model is its own."""
_OFFLOAD_BUFFER = "_offload_buffer"
"""How DeepSpeed ends the names of the memory that it has for a part of the optimizer's state while it sleeps."""


def save(engine: Any, path: str, *, ema: Any = None) -> None:
    """Write this rank's part. All ranks of the role call it at once."""
    (Path(path) / _TAG).mkdir(parents=True, exist_ok=True)
    with _model_written_once(engine, path):
        engine.save_checkpoint(path, tag=_TAG, save_latest=False, exclude_frozen_parameters=_has_frozen(engine))
    _name_as_first(engine, path)
    torch.save(_random_states(), Path(path) / _RANDOM)
    if ema is not None:
        _save_average(ema, Path(path) / _EMA)


def load(engine: Any, path: str, *, ema: Any = None, sleeps: bool = False) -> None:
    """Go back to what `save` wrote, in a new process or in the one that wrote it. All ranks call it at once.

    `sleeps`: between its calls the optimizer's state is in the memory of the host, as '--ds.enable_sleep' says.
    """
    if sleeps:
        reload_deepspeed_states(engine)
    # A commit is never in the universal format, whatever OpenRLHF's own checkpoints are in.
    with _set(engine._config, load_universal_checkpoint=False):
        found, _ = engine.load_checkpoint(path, tag=_TAG, load_module_strict=not _has_frozen(engine))
    if found is None:
        raise FileNotFoundError(f"there is no DeepSpeed checkpoint in '{path}'")
    if sleeps:
        _drop_offload_buffers(engine)
        offload_deepspeed_states(engine)
    if ema is not None:
        _load_average(ema, Path(path) / _EMA)
    _set_random_states(torch.load(Path(path) / _RANDOM, weights_only=False))


# ---- the model


@contextlib.contextmanager
def _model_written_once(engine: Any, path: str) -> Iterator[None]:
    """Where all ranks have the whole model, one on each node writes it, and the others link to its file."""
    own = Path(engine._get_ckpt_name(path, _TAG))
    first = own if _has_own_part(engine) else _first_in_sight(own)
    with _set(engine, save_non_zero_checkpoint=first == own):
        yield
    if first != own:
        _link(engine, path, own, first)
    if not _has_own_part(engine):
        torch.distributed.barrier()  # until all have linked: the folder of the first gets its final name next


def _has_own_part(engine: Any) -> bool:
    return bool(engine.zero_optimization_stage() == _PARTITIONED or engine.autotp_size() > 1)


def _first_in_sight(own: Path) -> Path:
    """The file of the first rank whose folder this rank sees: those of one node see each other's."""
    files: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(files, str(own))
    return next(file for file in map(Path, files) if file.name == own.name and file.parent.exists())


def _link(engine: Any, path: str, own: Path, first: Path) -> None:
    try:
        own.hardlink_to(first)
    except OSError:  # not on one file system
        with _set(engine, save_non_zero_checkpoint=True):
            engine._save_checkpoint(path, _TAG, exclude_frozen_parameters=_has_frozen(engine))


def _has_frozen(engine: Any) -> bool:
    """Parameters that are not trained, as with LoRA, are those of the pretrained model: no commit needs them."""
    return any(not parameter.requires_grad for parameter in engine.module.parameters())


def _name_as_first(engine: Any, path: str) -> None:
    """With ZeRO-3 each rank loads its partitions from its own file, but asks for rank 0's to know the rest."""
    first = Path(engine._get_ckpt_name(path, _TAG, pp_placeholder="0"))
    own = Path(engine._get_ckpt_name(path, _TAG))
    if own != first:
        first.unlink(missing_ok=True)
        first.hardlink_to(own)


def _drop_offload_buffers(engine: Any) -> None:
    """They came with the checkpoint, to the device: DeepSpeed would take them for memory of the host."""
    for state in engine.optimizer.optimizer.state.values():
        for name in [name for name in state if str(name).endswith(_OFFLOAD_BUFFER)]:
            del state[name]


# ---- the moving average


def _save_average(ema: Any, file: Path) -> None:
    parts = {name: part.detach().clone() for name, part in _parts(ema).items()}
    torch.save({"module": _unwrapped(ema).state_dict(), "parts": parts}, file)


def _load_average(ema: Any, file: Path) -> None:
    saved = torch.load(file, weights_only=True)
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


@contextlib.contextmanager
def _set(owner: Any, **values: Any) -> Iterator[None]:
    """For a while, these attributes have other values."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
