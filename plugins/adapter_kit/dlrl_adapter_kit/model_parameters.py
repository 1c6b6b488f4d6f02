"""How many parameters a model of Hugging Face has, from the files of its folder: nothing is imported or downloaded.

Of families whose layers are known, from `config.json` alone, matrix by matrix; of others, from the weights beside it.
"""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_Config = Mapping[str, Any]
_CONFIG, _INDEX, _WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


class SizeNotKnown(Exception):
    """The number can't be told before the job runs; the text says why."""


class Split(enum.Enum):
    """How tensor parallel ranks divide a matrix."""

    COLUMN = "column"
    """By its outputs, and its bias too."""
    ROW = "row"
    """By its inputs; each rank has the whole bias."""
    EXPERT = "expert"
    """By experts, and by those ranks that divide an expert."""
    WHOLE = "whole"
    """Not at all."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One linear layer, or several that are alike."""

    name: str
    inputs: int
    outputs: int
    has_bias: bool = False
    split: Split = Split.COLUMN
    count: int = 1

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.count

    @property
    def biases(self) -> int:
        return self.outputs * self.count if self.has_bias else 0


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer of a decoder."""

    matrices: tuple[Matrix, ...]
    norms: int
    """Parameters of all its norms."""

    @property
    def total(self) -> int:
        return self.norms + sum(one.weights + one.biases for one in self.matrices)


@dataclass(frozen=True, kw_only=True)
class ModelParameters:
    """Where the parameters of a model are. Of one whose layers are not known, all are in `other`."""

    hidden: int = 0
    embedding: int = 0
    head: int = 0
    """0 if the embedding is the head too."""
    final_norm: int = 0
    layers: tuple[Layer, ...] = ()
    other: int = 0

    @property
    def total(self) -> int:
        return self.embedding + self.head + self.final_norm + self.other + sum(layer.total for layer in self.layers)

    @property
    def in_matrices(self) -> int:
        """Weights of the linear layers between embedding and head."""
        return sum(matrix.weights for layer in self.layers for matrix in layer.matrices)

    def as_value_model(self) -> ModelParameters:
        """The same with a head of one output, as critics and reward models have."""
        return replace(self, head=self.hidden)

    def of_adapter(self, rank: int, targets: str | Sequence[str]) -> int:
        """Parameters of a LoRA adapter. Raises SizeNotKnown for modules that are not linear layers of known names."""
        matrices = [matrix for layer in self.layers for matrix in layer.matrices if matrix.split is not Split.WHOLE]
        if not matrices or any(matrix.split is Split.EXPERT for matrix in matrices):
            raise SizeNotKnown("the layers that an adapter is added to are not known for this kind of model")
        if targets != "all-linear":
            wanted = {targets} if isinstance(targets, str) else set(targets)
            if unknown := wanted - {matrix.name for matrix in matrices}:
                raise SizeNotKnown(f"the model has no linear layer {', '.join(repr(one) for one in sorted(unknown))}")
            matrices = [matrix for matrix in matrices if matrix.name in wanted]
        return sum(rank * (matrix.inputs + matrix.outputs) for matrix in matrices)


def parameters_of(model: str | None) -> ModelParameters:
    """Of a folder, or of a name on the hub that is in the local cache. Raises SizeNotKnown with the reason."""
    folder = _folder_of(model)
    config = _read_json(folder / _CONFIG)
    family = _FAMILIES.get(str(config.get("model_type")))
    return _counted(config, family) if family is not None else _stored(folder, config)


# ---- where the model is


def _folder_of(model: str | None) -> Path:
    if not model:
        raise SizeNotKnown("the config names no model")
    folder = Path(model).expanduser()
    if (folder / _CONFIG).is_file():
        return folder
    cached = _hub_cache() / f"models--{model.replace('/', '--')}"
    revision = cached / "refs" / "main"
    if revision.is_file():
        folder = cached / "snapshots" / revision.read_text().strip()
        if (folder / _CONFIG).is_file():
            return folder
    raise SizeNotKnown(f"'{model}' is no folder with a {_CONFIG} here, nor in the cache of the hub")


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SizeNotKnown(f"'{file}' can't be read: {error}") from error
    if not isinstance(found, dict):
        raise SizeNotKnown(f"'{file}' is not a JSON object")
    return found


# ---- from the config


@dataclass(frozen=True, kw_only=True)
class _Family:
    """What the config of a family does not say, or says only where it differs from this."""

    is_tied: bool = False
    head_dim: int | None = None
    has_qkv_bias: bool = False
    has_attention_bias_key: bool = False
    norms: int = 2
    """Of each layer, each as wide as the model."""
    has_query_norms: bool = False
    is_fused: bool = False
    """One matrix for queries, keys and values, one for the gate and what it gates."""


_FAMILIES = {
    "llama": _Family(has_attention_bias_key=True),
    "mistral": _Family(),
    "qwen2": _Family(has_qkv_bias=True),
    "qwen3": _Family(head_dim=128, has_attention_bias_key=True, has_query_norms=True),
    "gemma": _Family(is_tied=True, head_dim=256, has_attention_bias_key=True),
    "gemma2": _Family(is_tied=True, head_dim=256, has_attention_bias_key=True, norms=4),
    "gemma3_text": _Family(is_tied=True, head_dim=256, has_attention_bias_key=True, norms=4, has_query_norms=True),
    "phi3": _Family(is_fused=True),
    "mixtral": _Family(),
    "qwen2_moe": _Family(has_qkv_bias=True),
    "qwen3_moe": _Family(has_attention_bias_key=True, has_query_norms=True),
}


def _counted(config: _Config, family: _Family) -> ModelParameters:
    try:
        hidden, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
        count = int(config["num_hidden_layers"])
        layers = tuple(_layer(config, family, index) for index in range(count))
    except (KeyError, TypeError, ValueError) as error:
        raise SizeNotKnown(f"the model's {_CONFIG} has no usable {error}") from error
    is_tied = config.get("tie_word_embeddings", family.is_tied)
    embedding = vocabulary * hidden
    return ModelParameters(
        hidden=hidden, embedding=embedding, head=0 if is_tied else embedding, final_norm=hidden, layers=layers
    )


def _layer(config: _Config, family: _Family, index: int) -> Layer:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    head = int(config.get("head_dim") or family.head_dim or hidden // heads)
    norms = family.norms * hidden + (2 * head if family.has_query_norms else 0)
    matrices = (*_attention(config, family, hidden, heads, head), *_mlp(config, family, hidden, index))
    return Layer(matrices=matrices, norms=norms)


def _attention(config: _Config, family: _Family, hidden: int, heads: int, head: int) -> list[Matrix]:
    width, narrow = heads * head, int(config.get("num_key_value_heads") or heads) * head
    everywhere = family.has_attention_bias_key and bool(config.get("attention_bias", False))
    bias = bool(config.get("qkv_bias", True)) if family.has_qkv_bias else everywhere
    if family.is_fused:
        first = [Matrix(name="qkv_proj", inputs=hidden, outputs=width + 2 * narrow)]
    else:
        sizes = {"q_proj": width, "k_proj": narrow, "v_proj": narrow}
        first = [Matrix(name=name, inputs=hidden, outputs=size, has_bias=bias) for name, size in sizes.items()]
    return [*first, Matrix(name="o_proj", inputs=width, outputs=hidden, has_bias=everywhere, split=Split.ROW)]


def _mlp(config: _Config, family: _Family, hidden: int, index: int) -> list[Matrix]:
    experts = int(config.get("num_local_experts") or config.get("num_experts") or 0)
    if not experts or not _is_sparse(config, index):
        return _gated(hidden, int(config["intermediate_size"]), family, has_bias=bool(config.get("mlp_bias", False)))
    inner = int(config.get("moe_intermediate_size") or config["intermediate_size"])
    found = [replace(one, split=Split.EXPERT, count=experts) for one in _gated(hidden, inner, family, has_bias=False)]
    found.append(Matrix(name="router", inputs=hidden, outputs=experts, split=Split.WHOLE))
    if shared := int(config.get("shared_expert_intermediate_size") or 0):
        found += _gated(hidden, shared, family, has_bias=False)
        found.append(Matrix(name="shared_expert_gate", inputs=hidden, outputs=1, split=Split.WHOLE))
    return found


def _is_sparse(config: _Config, index: int) -> bool:
    """Whether this layer has experts, by the keys of Qwen's models."""
    return (
        index not in (config.get("mlp_only_layers") or ()) and (index + 1) % config.get("decoder_sparse_step", 1) == 0
    )


def _gated(hidden: int, inner: int, family: _Family, *, has_bias: bool) -> list[Matrix]:
    down = Matrix(name="down_proj", inputs=inner, outputs=hidden, has_bias=has_bias, split=Split.ROW)
    if family.is_fused:
        return [Matrix(name="gate_up_proj", inputs=hidden, outputs=2 * inner), down]
    up = [Matrix(name=name, inputs=hidden, outputs=inner, has_bias=has_bias) for name in ("gate_proj", "up_proj")]
    return [*up, down]


# ---- from the weights


def _stored(folder: Path, config: _Config) -> ModelParameters:
    """Of an architecture whose layers are not known here: as many as the files of weights have."""
    text: Any = config.get("text_config") or config
    hidden = int(text.get("hidden_size") or 0) if isinstance(text, Mapping) else 0
    if (folder / _INDEX).is_file():
        metadata = _read_json(folder / _INDEX).get("metadata", {})
        kind = str(config.get("dtype") or config.get("torch_dtype"))
        total = metadata.get("total_parameters")
        if total is None and "total_size" in metadata and kind in _BYTES:
            total = int(metadata["total_size"]) // _BYTES[kind]
        if total is not None:
            return ModelParameters(hidden=hidden, other=int(total))
    if (folder / _WEIGHTS).is_file():
        return ModelParameters(hidden=hidden, other=_in_header(folder / _WEIGHTS))
    kind = str(config.get("model_type"))
    raise SizeNotKnown(f"the layers of model_type '{kind}' are not known, and '{folder}' has no {_INDEX} to tell")


def _in_header(file: Path) -> int:
    """The header of a file of safetensors: its length in eight bytes, then JSON with the shape of each tensor."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
