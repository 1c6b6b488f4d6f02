"""DeepSpeed's own checkpoint of one rank as trees in memory: no file is written or read, no tensor is copied.

`save_checkpoint` and `load_checkpoint` of DeepSpeed do the work. They ask the engine's checkpoint engine to write and
read files; the one here keeps what it is asked to write, by the names of the files.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.runtime import state_dict_factory
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from torch.optim import Adam, AdamW

from dlrl_adapter_kit.framework_seam import replaced
from dlrl_core.errors import DlrlError

_FOLDER = "dlrl"
"""Of the names of files; there is no such folder."""
_TAG = "commit"
_OFFLOAD_BUFFER = "_offload_buffer"
_SCALER = "loss_scaler"

_WRAPPERS = (DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3, BF16_Optimizer, FP16_UnfusedOptimizer)
_OPTIMIZERS = (Adam, AdamW, FusedAdam, DeepSpeedCPUAdam, MuonWithAuxAdam)

_LEFT_OUT = frozenset(
    {
        # A new process has the same from its configuration and its model.
        "ds_config",
        "sparse_tensor_module_names",
        # They are for tools that read a checkpoint without the model, and for its universal format.
        "param_shapes",
        "frozen_param_shapes",
        "shared_params",
        "buffer_names",
        "checkpoint_parallel_dimensions",
        "param_slice_mappings",
        "universal_checkpoint_info",
        "zero_stage",
    }
)


def saved_trees(engine: Any) -> dict[str, Any]:
    """What DeepSpeed would write to each file of this rank. All ranks of the role call it at once."""
    _refuse_unknown(engine)
    files = _TreesInMemory()
    # On every rank, also where all of them have the same model; and DeepSpeed copies a script beside a checkpoint.
    with _instead(engine, checkpoint_engine=files, save_non_zero_checkpoint=True, _copy_recovery_script=_nothing):
        engine.save_checkpoint(_FOLDER, tag=_TAG, save_latest=False, exclude_frozen_parameters=_has_frozen(engine))
    return {name: _kept(tree) for name, tree in files.trees.items()}


def load_trees(engine: Any, trees: Mapping[str, Any]) -> None:
    """Have DeepSpeed load the trees of `saved_trees`, and copy all of their tensors."""
    files = _TreesInMemory({name: _revived(engine, tree) for name, tree in trees.items()})
    model = files.load(engine._get_ckpt_name(_FOLDER, _TAG))
    # A commit is never in the universal format, whatever OpenRLHF's own checkpoints are in.
    with (
        _own_tensors(_base_optimizer(engine)),
        _instead(engine._config, load_universal_checkpoint=False),
        _instead(engine, checkpoint_engine=files),
        replaced(state_dict_factory, SDLoaderFactory=_LoaderOf(model)),
    ):
        engine.load_checkpoint(_FOLDER, tag=_TAG, load_module_strict=not _has_frozen(engine))


def model_file(engine: Any) -> str:
    """The name of the file with this rank's model."""
    return Path(engine._get_ckpt_name(_FOLDER, _TAG)).name


def _has_frozen(engine: Any) -> bool:
    """Parameters that are not trained, as with LoRA, are those of the pretrained model: no commit needs them."""
    return any(not parameter.requires_grad for parameter in engine.module.parameters())


def _refuse_unknown(engine: Any) -> None:
    """An optimizer of another class may keep state where no checkpoint of DeepSpeed has it."""
    known = (*_OPTIMIZERS, *_WRAPPERS)
    for one in (engine.optimizer, _base_optimizer(engine)):
        if type(one) not in known:
            name = f"{type(one).__module__}.{type(one).__qualname__}"
            names = ", ".join(each.__name__ for each in known)
            raise DlrlError(f"a commit can't hold the state of optimizer '{name}', which is not known; known: {names}")
    if engine.has_moe_layers:
        raise DlrlError("a commit can't hold the state of DeepSpeed's MoE layers, which is not known")


def _base_optimizer(engine: Any) -> Any:
    """The optimizer that DeepSpeed wraps; without a wrapper, the engine's own."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


# ---- trees of files


def _kept(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of a file, with what a commit needs of it."""
    kept = {name: value for name, value in tree.items() if name not in _LEFT_OUT}
    if _SCALER in kept:
        kept[_SCALER] = dict(vars(kept[_SCALER]))  # numbers, flags and a dtype
    if "state" in kept and "param_groups" in kept:  # of an optimizer of torch
        kept["state"] = {key: _without_buffers(state) for key, state in kept["state"].items()}
    for name in ("optimizer", "optimizer_state_dict", "base_optimizer_state"):
        if isinstance(kept.get(name), Mapping):
            kept[name] = _kept(kept[name])
    return kept


def _without_buffers(state: Mapping[str, Any]) -> dict[str, Any]:
    """Memory of the host that DeepSpeed has for a part of the state while it sleeps: the same bytes, or old ones."""
    return {name: value for name, value in state.items() if not name.endswith(_OFFLOAD_BUFFER)}


def _revived(engine: Any, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree as DeepSpeed loads it: with a loss scaler as an object."""
    state = tree.get("optimizer_state_dict") or {}
    if _SCALER not in state:
        return dict(tree)
    scaler = copy.copy(engine.optimizer.loss_scaler)
    vars(scaler).update(state[_SCALER])
    return {**tree, "optimizer_state_dict": {**state, _SCALER: scaler}}


@contextlib.contextmanager
def _own_tensors(optimizer: Any) -> Iterator[None]:
    """Let an optimizer of torch load copies, and in the dtypes that were saved.

    It would take tensors that are on its device as they are, which on the host are the commit's memory, and convert
    all to the dtype of its parameters, with which Muon, whose momentum is in half precision, does not train on.
    """
    saved: dict[Any, Any] = {}

    def before(_: Any, state_dict: Any) -> None:
        saved.update(state_dict["state"])

    def after(loaded: Any) -> None:
        for index, state in loaded.state_dict()["state"].items():
            for name, value in state.items():
                if torch.is_tensor(value) and (value.device.type == "cpu" or value.dtype != saved[index][name].dtype):
                    state[name] = saved[index][name].to(value.device, copy=True)

    with optimizer.register_load_state_dict_pre_hook(before), optimizer.register_load_state_dict_post_hook(after):
        yield


# ---- the seam


class _TreesInMemory(CheckpointEngine):  # type: ignore[misc]
    """A checkpoint engine of DeepSpeed whose files are trees in memory."""

    def __init__(self, trees: dict[str, Any] | None = None) -> None:
        self.trees: dict[str, Any] = {} if trees is None else trees

    def create(self, info: Any) -> None: ...

    def makedirs(self, path: str, exist_ok: bool = False) -> None: ...

    def save(self, state_dict: Any, path: str) -> None:
        self.trees[Path(path).name] = state_dict

    def load(self, path: str, map_location: Any = None) -> Any:
        name = Path(path).name
        if name not in self.trees:
            raise DlrlError(f"this rank's commit has no '{name}'; it has {', '.join(sorted(self.trees))}")
        return self.trees[name]

    def commit(self, info: Any) -> None: ...


class _LoaderOf:
    """The factory and the loader of the model's file; DeepSpeed's own looks for it on disk."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def get_sd_loader(self, *_: Any, **__: Any) -> _LoaderOf:
        return self

    def load(self, *_: Any, **__: Any) -> tuple[str, Any, None]:
        return _FOLDER, self._model, None


def _nothing(*_: Any) -> None: ...


@contextlib.contextmanager
def _instead(owner: Any, **values: Any) -> Iterator[None]:
    """For a while, these attributes of an object have other values."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    vars(owner).update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            del vars(owner)[name]
        vars(owner).update(before)
