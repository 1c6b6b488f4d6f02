"""How many bytes a commit holds of an actor or a critic of verl, from its config and the model's.

The figures are those of what `engine_state.capture` names. FSDP has weights and moments in the dtype of the model, and
divides both. Megatron has weights in half precision on each data-parallel rank, and its optimizer has a copy of them
and the moments in full precision, which these ranks divide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlrl_adapter_kit.model_parameters import Layer, ModelParameters, SizeNotKnown, Split, parameters_of
from dlrl_adapter_kit.sizes import shown_count, size_or_reason
from dlrl_core.spec.state_size import StatePart, StateSize
from dlrl_verl.config import Settings

ACTOR, CRITIC = "actor_rollout_ref.actor", "critic"
_MODELS = {ACTOR: "actor_rollout_ref.model", CRITIC: "critic.model"}
_FSDP = {ACTOR: f"{ACTOR}.fsdp_config", CRITIC: f"{CRITIC}.fsdp"}
_HALF = ("bf16", "bfloat16", "fp16", "float16", "half")
_FULL = 4
_MOMENTS = 2


def state_size(settings: Settings, section: str) -> StateSize:
    """Of the section ACTOR or CRITIC."""
    sizes = {"fsdp": _fsdp, "fsdp2": _fsdp, "megatron": _megatron}
    strategy = str(settings[f"{section}.strategy"])
    return size_or_reason(lambda: sizes.get(strategy, _unknown)(settings, section))


def _unknown(settings: Settings, section: str) -> StateSize:
    raise SizeNotKnown(f"how verl's engine '{settings[f'{section}.strategy']}' divides a model is not known")


def _model(settings: Settings, section: str) -> ModelParameters:
    model = parameters_of(settings[f"{_MODELS[section]}.path"])
    return model.as_value_model() if section == CRITIC else model


def _width(dtype: object) -> int:
    return 2 if str(dtype) in _HALF else _FULL


# ---- FSDP


def _fsdp(settings: Settings, section: str) -> StateSize:
    model, engine = _model(settings, section), _FSDP[section]
    name = str(settings[f"{section}.optim.optimizer"])
    if name not in ("Adam", "AdamW") or settings[f"{section}.optim.optimizer_impl"] != "torch.optim":
        raise SizeNotKnown(f"how large the state of optimizer '{name}' is, is not known")
    width, shards, ranks = _width(settings[f"{engine}.model_dtype"]), _shards(settings, engine), settings.devices
    adapter = _adapter(settings, section, model)
    trained = model.total if adapter is None else adapter
    # a critic's frozen weights are kept, since its head is in no checkpoint
    kept = trained if adapter is None or section == ACTOR else model.total + adapter
    size = width * (kept + _MOMENTS * trained) // shards
    kind = "FSDP" if shards == ranks else f"HSDP, {ranks // shards} replicas, once a node"
    each = f"{width * (1 + _MOMENTS)} B a parameter over {shards} ranks"
    return StateSize(
        parts=(StatePart(size=size, contents=shards if shards < ranks else None),),
        derivation=f"{shown_count(trained)}{'' if adapter is None else ' of the adapter'}; {kind}, {name}: {each}",
    )


def _shards(settings: Settings, engine: str) -> int:
    size = settings.number(f"{engine}.fsdp_size", -1)
    return settings.devices if size <= 0 or size >= settings.devices else size


def _adapter(settings: Settings, section: str, model: ModelParameters) -> int | None:
    """Parameters of the LoRA adapter; None if the whole model is trained."""
    told = _MODELS[section]
    if settings[f"{told}.lora_adapter_path"]:
        raise SizeNotKnown(f"how large the adapter at '{told}.lora_adapter_path' is, is not known")
    rank = settings.number(f"{told}.lora_rank", 0)
    return model.of_adapter(rank, settings[f"{told}.target_modules"] or "all-linear") if rank > 0 else None


# ---- Megatron


@dataclass(frozen=True, kw_only=True)
class _Mesh:
    """How Megatron divides ranks: of each pipeline stage, tensor parallel ones are next to each other."""

    tensor: int
    stages: int
    ranks: int
    """Of each stage."""
    expert_parts: int
    """Ranks that have different experts, or different parts of them."""

    @classmethod
    def of(cls, settings: Settings, section: str) -> _Mesh:
        engine = f"{section}.megatron"
        tensor, stages = (settings.number(f"{engine}.{one}_model_parallel_size") for one in ("tensor", "pipeline"))
        expert = settings.number(f"{engine}.expert_model_parallel_size")
        within = settings.number(f"{engine}.expert_tensor_parallel_size", tensor)
        ranks = settings.devices // stages
        if any(size <= 0 or ranks % size for size in (tensor, within * expert)):
            raise SizeNotKnown(f"{ranks} ranks of a pipeline stage can't be divided by {tensor} and {within * expert}")
        return cls(tensor=tensor, stages=stages, ranks=ranks, expert_parts=within * expert)


def _megatron(settings: Settings, section: str) -> StateSize:
    _refuse_unknown(settings, section)
    model, mesh, engine = _model(settings, section), _Mesh.of(settings, section), f"{section}.megatron"
    width = _width(settings[f"{engine}.dtype"])
    optimizer = _FULL * (_MOMENTS + (width < _FULL)) + _of_copies_on_host(settings, section)
    is_divided = bool(settings[f"{engine}.use_distributed_optimizer"])
    parts = []
    for stage, (dense, experts) in enumerate(_stages(settings, section, model, mesh)):
        for count, contents in ((dense, mesh.tensor), (experts, mesh.expert_parts)):
            of_optimizer = int(optimizer * count)
            own = of_optimizer // (mesh.ranks // contents) if is_divided else 0
            alike = width * count + (0 if is_divided else of_optimizer)
            held = {"first_rank": stage * mesh.ranks, "ranks": mesh.ranks}
            parts += [StatePart(size=alike, contents=contents, **held), StatePart(size=own, **held)]
    return StateSize(
        parts=tuple(part for part in parts if part.size),
        derivation=_derivation(model, mesh, width, optimizer, is_divided),
    )


def _derivation(model: ModelParameters, mesh: _Mesh, width: int, optimizer: float, is_divided: bool) -> str:
    replicas = mesh.ranks // mesh.tensor
    over = f"over {replicas} data-parallel ranks" if is_divided else "once a node"
    return (
        f"{shown_count(model.total)}; Megatron tp {mesh.tensor}, pp {mesh.stages}: weights {width} B a parameter, "
        f"once a node; Adam: {optimizer:g} B {over}"
    )


def _refuse_unknown(settings: Settings, section: str) -> None:
    optimizer = settings[f"{section}.optim.optimizer"]
    if optimizer != "adam" or settings[f"{section}.optim.use_precision_aware_optimizer"]:
        raise SizeNotKnown(f"how large the state of Megatron's optimizer '{optimizer}' is, is not known")
    if settings.number(f"{_MODELS[section]}.lora.rank", 0) > 0:
        raise SizeNotKnown("how Megatron divides a LoRA adapter is not known")


def _of_copies_on_host(settings: Settings, section: str) -> float:
    """The hybrid optimizer has copies of weights on the host besides those on the device."""
    told = settings[f"{section}.optim.override_optimizer_config"] or {}
    return _FULL * float(told.get("optimizer_offload_fraction", 0)) if told.get("optimizer_cpu_offload") else 0


def _stages(settings: Settings, section: str, model: ModelParameters, mesh: _Mesh) -> Iterator[tuple[int, int]]:
    """For each pipeline stage, how many parameters one rank has, those of experts apart."""
    if not model.layers:
        if mesh.expert_parts > mesh.tensor:
            raise SizeNotKnown("which parameters are those of experts is not known for this kind of model")
        yield from [(model.total // (mesh.tensor * mesh.stages), 0)] * mesh.stages
        return
    begin = 0
    for stage, count in enumerate(_layers_of_stages(settings, section, len(model.layers), mesh.stages)):
        layers = model.layers[begin : begin + count]
        begin += count
        dense = sum(_of_rank(layer, mesh.tensor) for layer in layers)
        experts = sum(one.weights for layer in layers for one in layer.matrices if one.split is Split.EXPERT)
        yield dense + _at_the_ends(model, mesh, stage, section), experts // mesh.expert_parts


def _of_rank(layer: Layer, tensor: int) -> int:
    found = layer.norms
    for one in layer.matrices:
        if one.split is Split.COLUMN:
            found += (one.weights + one.biases) // tensor
        elif one.split is Split.ROW:
            found += one.weights // tensor + one.biases
        elif one.split is Split.WHOLE:
            found += one.weights
    return found


def _at_the_ends(model: ModelParameters, mesh: _Mesh, stage: int, section: str) -> int:
    """Of the first stage the embedding; of the last one the norm and the head, which may be a copy of the embedding."""
    found = model.embedding // mesh.tensor if stage == 0 else 0
    if stage < mesh.stages - 1:
        return found
    if section == CRITIC:
        return found + model.final_norm + model.head
    head = model.head or (model.embedding if mesh.stages > 1 else 0)
    return found + model.final_norm + head // mesh.tensor


def _layers_of_stages(settings: Settings, section: str, layers: int, stages: int) -> list[int]:
    told = settings[f"{section}.megatron.override_transformer_config"] or {}
    ends = {at: told.get(f"num_layers_in_{at}_pipeline_stage") for at in ("first", "last")}
    fixed = [int(count) for count in ends.values() if count]
    middle, rest = stages - len(fixed), layers - sum(fixed)
    if told.get("account_for_embedding_in_pipeline_split") or middle < 1 or rest % middle:
        raise SizeNotKnown(f"how Megatron divides {layers} layers over {stages} stages is not known")
    found = [rest // middle] * middle
    return [*([int(ends["first"])] if ends["first"] else []), *found, *([int(ends["last"])] if ends["last"] else [])]
