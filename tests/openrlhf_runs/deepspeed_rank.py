"""One of two ranks of a tiny model with real DeepSpeed, that commits, trains on and goes back.

`python deepspeed_rank.py STAGE FOLDER`, with the variables of torch; prints what it saw as JSON.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from dlrl_openrlhf import cpu

cpu.prepare()

import deepspeed  # noqa: E402
import torch  # noqa: E402
from openrlhf.utils.deepspeed.deepspeed_utils import (  # noqa: E402
    get_eval_ds_config,
    get_train_ds_config,
    offload_deepspeed_states,
)

from dlrl_openrlhf import deepspeed_state  # noqa: E402

BATCH = {"train_micro_batch_size_per_gpu": 1, "train_batch_size": 2}
ADAM = {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True}}


def main(stage: int, folder: Path) -> None:
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    module[0].requires_grad_(False)
    ema = SimpleNamespace(model=_engine(copy.deepcopy(module), get_eval_ds_config(False, stage=3 if stage == 3 else 0)))
    engine = _engine(module, _train_config(stage))
    sleeps = stage == 2  # with ZeRO-3 DeepSpeed wants an Adam that it compiles
    path = folder / f"rank{rank}" / "1.part"

    _train(engine, rank)
    if sleeps:
        offload_deepspeed_states(engine)
    before = _tensors(engine, ema)
    deepspeed_state.save(engine, str(path), ema=ema)
    if sleeps:
        engine.reload_states()
    _train(engine, rank)
    with torch.no_grad():
        for tensor in _ema_tensors(ema):
            tensor.zero_()
    trained = _tensors(engine, ema)
    deepspeed_state.load(engine, str(path), ema=ema, sleeps=sleeps)
    after = _tensors(engine, ema)

    models = {file.name: file.stat().st_nlink for file in (path / "commit").glob("*_model_states.pt")}
    saved = torch.load(next((path / "commit").glob("*_model_states.pt")), weights_only=False)["module"]
    seen = {
        "changed": any(not torch.equal(one, other) for one, other in zip(before, trained, strict=True)),
        "restored": all(torch.equal(one, other) for one, other in zip(before, after, strict=True)),
        "models": models,
        "parameters": sorted(saved),
        "sleeps": bool(getattr(engine.optimizer, "offloaded_states", ())),
    }
    print(json.dumps(seen))


def _train_config(stage: int) -> dict:
    """OpenRLHF's own; the universal format is what its checkpoints would be in, not commits."""
    return get_train_ds_config(
        False, adam_offload=False, stage=stage, zpg=1, optim_config=ADAM, use_ds_universal_ckpt=True
    )


def _engine(module: torch.nn.Module, config: dict) -> object:
    zero = {key: value for key, value in config["zero_optimization"].items() if value != "auto"}
    return deepspeed.initialize(model=module, config={**config, **BATCH, "zero_optimization": zero})[0]


def _train(engine: object, rank: int) -> None:
    loss = engine(torch.full((1, 4), 1.0 + rank, dtype=torch.bfloat16)).float().square().sum()
    engine.backward(loss)
    engine.step()


def _ema_tensors(ema: SimpleNamespace) -> list[torch.Tensor]:
    return [one for parameter in ema.model.module.parameters() for one in (parameter.data, _part(parameter))]


def _part(parameter: torch.nn.Parameter) -> torch.Tensor:
    return getattr(parameter, "ds_tensor", parameter).data


def _tensors(engine: object, ema: SimpleNamespace) -> list[torch.Tensor]:
    """What this rank holds of parameters, of the optimizer's state and of the average, copied."""
    states = [value for one in engine.optimizer.optimizer.state.values() for value in one.values()]
    own = [_part(parameter) for parameter in engine.module.parameters()]
    return [one.detach().cpu().clone() for one in (*own, *filter(torch.is_tensor, states), *_ema_tensors(ema))]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
