"""How many bytes a commit holds of an actor or a critic on DeepSpeed, from the flags and the model's config.

The figures are those of what `deepspeed_state.capture` names: weights in two bytes, and DeepSpeed's optimizer, which
has each trained parameter and Adam's two moments in four bytes; Muon's momentum is in two.
"""

from __future__ import annotations

from dlrl_adapter_kit.model_parameters import ModelParameters, SizeNotKnown, parameters_of
from dlrl_adapter_kit.sizes import shown_count, size_or_reason
from dlrl_core.spec.state_size import StatePart, StateSize
from dlrl_openrlhf.config import Settings

_WEIGHT, _MASTER, _ADAM, _MUON = 2, 4, 8, 2
_PARTITIONED = 3


def state_size(settings: Settings, section: str) -> StateSize:
    """Of the section 'actor' or 'critic'."""
    return size_or_reason(lambda: _size(settings, section))


def _size(settings: Settings, section: str) -> StateSize:
    model = parameters_of(_model_of(settings, section))
    model = model.as_value_model() if section == "critic" else model
    trained, optimizer = _trained(settings, model), _of_optimizer(settings, section, model)
    stage, world, tensor = _layout(settings, section)
    over = world if stage > 0 else tensor
    parts = [StatePart(size=optimizer // over)]
    weights = _WEIGHT * (trained if stage < _PARTITIONED else 0)
    average = _WEIGHT * model.total if section == "actor" and settings["train.enable_ema"] else 0
    if stage == _PARTITIONED:
        parts.append(StatePart(size=average // world))
    else:  # with tensor parallelism, a commit calls nothing alike
        parts.append(StatePart(size=(weights + average) // tensor, contents=1 if tensor == 1 else None))
    return StateSize(
        parts=tuple(part for part in parts if part.size),
        derivation=_derivation(settings, section, trained=trained, optimizer=optimizer, over=over, average=average),
    )


def _derivation(settings: Settings, section: str, *, trained: int, optimizer: int, over: int, average: int) -> str:
    stage, name = settings["ds.zero_stage"], str(settings[f"{section}.optim"]).title()
    what = "of the adapter" if settings["ds.lora.rank"] else "trained"
    where = f"over {over} ranks" if stage else "on each rank"
    of_optimizer = f"ZeRO-{stage}, {name}: {optimizer / trained:.3g} B a parameter {where}"
    weights = [f"weights: {_WEIGHT} B, once a node"] if stage < _PARTITIONED else []
    return "; ".join(
        [
            f"{shown_count(trained)} {what}",
            of_optimizer,
            *weights,
            *([f"moving average: {_WEIGHT} B of each"] if average else []),
        ]
    )


def _layout(settings: Settings, section: str) -> tuple[int, int, int]:
    """The stage of ZeRO, all ranks, and those that divide a model by tensors."""
    return int(settings["ds.zero_stage"]), settings.processes(section), int(settings["ds.tensor_parallel_size"])


def _model_of(settings: Settings, section: str) -> str | None:
    """Without a name, a critic begins as the reward model, or as the actor where there is none."""
    names = [settings[f"{section}.model_name_or_path"]]
    if section == "critic":
        first = str(settings["reward.model_name_or_path"] or "").partition(",")[0]
        names.append(settings["actor.model_name_or_path"] if settings["reward.remote_url"] else first)
    return next((str(name) for name in names if name), None)


def _trained(settings: Settings, model: ModelParameters) -> int:
    """Parameters that are trained; with LoRA those of the adapter, as no commit holds the others."""
    if settings["actor.freeze_visual_encoder"]:
        raise SizeNotKnown("how many parameters 'actor.freeze_visual_encoder' leaves to be trained is not known")
    rank = int(settings["ds.lora.rank"])
    return model.of_adapter(rank, settings["ds.lora.target_modules"]) if rank else model.total


def _of_optimizer(settings: Settings, section: str, model: ModelParameters) -> int:
    """Bytes of the optimizer, before ranks divide it. Muon trains all matrices but embedding and head."""
    trained = _trained(settings, model)
    if settings[f"{section}.optim"] != "muon":
        return (_MASTER + _ADAM) * trained
    if not model.layers:
        raise SizeNotKnown("which parameters Muon trains is not known for this kind of model")
    value_head = model.head if section == "critic" else 0
    matrices = trained if settings["ds.lora.rank"] else model.in_matrices + value_head
    return _MASTER * trained + _MUON * matrices + _ADAM * (trained - matrices)
