"""One rank of a tiny model with real DeepSpeed: it captures its state, trains on, goes back and trains again.

`python deepspeed_rank.py CASE FOLDER PART`, with the variables of torch; prints what it saw as JSON. PART is

- `whole`: train, capture to FOLDER, train on undisturbed; then go back in this process, and train on again;
- `resumed`: a new process, another seed: go back to what is in FOLDER, and train on.

If FOLDER has a `model` with a config of transformers, `whole` also trains that one for a step, with the same layout, and
tells how many bytes its commit has.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlrl_openrlhf import cpu

cpu.prepare()

import deepspeed  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from deepspeed.runtime.zero.offload_states import offload_adam_states  # noqa: E402
from openrlhf.utils.deepspeed.deepspeed_utils import (  # noqa: E402
    get_eval_ds_config,
    get_train_ds_config,
    offload_deepspeed_states,
    reload_deepspeed_states,
)

from dlrl_core.workload.captured_state import CapturedState, SavedState  # noqa: E402
from dlrl_openrlhf import deepspeed_state  # noqa: E402

ADAM = {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True}}
MUON = {"type": "Muon", "params": {"lr": 0.1, "momentum": 0.9}}
MASTERS = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition")
"""What optimizers of DeepSpeed call the weights in full precision."""
STEPS = 3
_written: list[str] = []
"""Files and folders that were written, and classes that were unpickled, since it was cleared."""


def main(case: str, folder: Path, part: str) -> None:
    sys.addaudithook(_watch)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    rank = Rank(case, seed=1 if part == "whole" else 99)
    seen = rank.whole(folder) if part == "whole" else rank.resumed(folder)
    if part == "whole" and (folder / "model").exists():
        seen["sizes"] = sizes_of_a_model(case, folder / "model")
    print(json.dumps(seen))


class Rank:
    def __init__(self, case: str, *, seed: int) -> None:
        self.number, self.stage = torch.distributed.get_rank(), int(case[-1])
        self.sleeps = self.stage == 2 and not case.startswith("muon")  # with ZeRO-3 DeepSpeed wants a compiled Adam
        _seed(1)
        pretrained = torch.nn.Linear(8, 8).requires_grad_(False)
        _seed(seed)
        module = torch.nn.Sequential(pretrained, torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
        average = get_eval_ds_config(False, stage=3 if self.stage == 3 else 0)
        self.ema = SimpleNamespace(model=_engine(copy.deepcopy(module), average))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1) if case.startswith("sgd") else None
        config = _train_config(
            self.stage,
            MUON if case.startswith("muon") else ADAM,
            gradients="fp32" if case.startswith("fp32_gradients") else None,
        )
        self.engine = _engine(module, config, optimizer=optimizer)
        if self.sleeps:
            offload_deepspeed_states(self.engine)
        _seed(seed + self.number)

    def whole(self, folder: Path) -> dict[str, Any]:
        self.train()
        if self.stage == 3:  # its fused Adam can't be compiled here; what it adds to the state while it sleeps
            offload_adam_states(self.engine.optimizer.optimizer, "cpu")
        _written.clear()
        captured = deepspeed_state.capture(self.engine, ema=self.ema)
        written = list(_written)
        saved, layout = _copied(captured), json.dumps(captured.layout, allow_nan=False)
        _write(saved, layout, folder / f"rank{self.number}")
        at_commit = self.tensors()
        undisturbed = [self.train(), self.tensors()]
        is_by_reference = _digest(_copied(captured).values()) != _digest(saved.values())
        self._backward()  # a step that was begun
        _written.clear()
        self.restore(layout, saved)
        restored, mapped = self.tensors(), _digest(saved.values())
        again = [self.train(), self.tensors()]
        return {
            "capture_wrote": written,
            "restore_wrote": list(_written),
            "is_by_reference": is_by_reference,
            "changed": undisturbed[1] != at_commit,
            "restored": restored == at_commit,
            "leaves_the_commit_alone": mapped == _digest(saved.values()),
            "undisturbed": undisturbed,
            "again": again,
            "sleeps": bool(getattr(self.engine.optimizer, "offloaded_states", ())),
            "holds_offload_buffers": "_offload_buffer" in layout,
            "parameters": sorted(_module_of(captured)),
            "alike": {name: _digest([saved[buffer]]) for buffer, name in captured.alike.items()},
            "alike_bytes": sum(captured.buffers[buffer].size for buffer in captured.alike),
        }

    def resumed(self, folder: Path) -> dict[str, Any]:
        layout, saved = _read(folder / f"rank{self.number}")
        self.restore(layout, saved)
        return {"resumed": [self.train(), self.tensors()]}

    def restore(self, layout: str, saved: dict[str, bytearray]) -> None:
        state = SavedState(
            layout=json.loads(layout), buffers={name: memoryview(content) for name, content in saved.items()}
        )
        deepspeed_state.restore(self.engine, state, ema=self.ema, sleeps=self.sleeps)

    def train(self) -> list[str]:
        """Some steps, which depend on all random states; the losses, bit for bit."""
        if self.sleeps:
            reload_deepspeed_states(self.engine)
        losses = [self._step() for _ in range(STEPS)]
        if self.sleeps:
            offload_deepspeed_states(self.engine)
        return losses

    def _step(self) -> str:
        loss = self._backward()
        self.engine.step()
        with torch.no_grad():
            for average, own in zip(_own_tensors(self.ema.model), _own_tensors(self.engine), strict=True):
                average.mul_(0.5).add_(own, alpha=0.5)
        return float(loss).hex()

    def _backward(self) -> torch.Tensor:
        scale = random.random() + np.random.rand()
        loss = self.engine((scale * torch.randn(2, 8)).to(torch.bfloat16)).float().square().sum()
        self.engine.backward(loss)
        return loss

    def tensors(self) -> str:
        """What this rank holds of parameters, of the optimizer's state and of the average, bit for bit."""
        masters = [one for name in MASTERS for one in getattr(self.engine.optimizer, name, ())]
        kept = self.engine.optimizer.optimizer.state.values()
        states = [value for one in kept for name, value in one.items() if not name.endswith("_offload_buffer")]
        numbers = [torch.tensor(float(one)) for one in states if not torch.is_tensor(one)]
        own = [*_own_tensors(self.engine), *_own_tensors(self.ema.model)]
        return _digest(_content(one) for one in (*own, *masters, *filter(torch.is_tensor, states), *numbers))


def sizes_of_a_model(case: str, model: Path) -> dict[str, int]:
    """Bytes that a commit has of an actor of OpenRLHF: this rank's own, and those that all ranks have alike."""
    from openrlhf.utils.deepspeed.deepspeed_utils import get_optimizer_grouped_parameters
    from transformers import AutoConfig, AutoModelForCausalLM

    config, is_muon = AutoConfig.from_pretrained(model), case.startswith("muon")
    module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    if "lora" in case:
        from peft import LoraConfig, get_peft_model

        module = get_peft_model(module, LoraConfig(task_type="CAUSAL_LM", r=64, target_modules="all-linear"))
    average = None
    if "ema" in case:
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        average = SimpleNamespace(model=_engine(whole, get_eval_ds_config(False, stage=3 if case[-1] == "3" else 0)))
    trained = [one for one in module.parameters() if one.requires_grad]
    groups = trained if is_muon else get_optimizer_grouped_parameters(module, 0.01)
    told = _train_config(int(case[-1]), MUON if is_muon else ADAM, gradients=None)
    engine = _engine(module, told, parameters=groups)
    engine.backward(engine(torch.arange(8).reshape(1, 8)).logits.float().square().mean())
    engine.step()
    captured = deepspeed_state.capture(engine, ema=average)
    alike = sum(captured.buffers[name].size for name in captured.alike)
    return {"own": captured.size - alike, "alike": alike}


def _train_config(stage: int, optimizer: dict[str, Any], *, gradients: str | None) -> dict[str, Any]:
    """OpenRLHF's own; the universal format is what its checkpoints would be in, not commits."""
    config = get_train_ds_config(
        False,
        adam_offload=False,
        stage=stage,
        zpg=1,
        grad_accum_dtype=gradients,
        optim_config=optimizer,
        use_ds_universal_ckpt=stage > 0,
    )
    # After a step DeepSpeed gathers small parameters at once and waits for the last of them, which is enough with NCCL;
    # with gloo others may still be under way, and one step in a hundred trains on garbage.
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    return {**config, "zero_allow_untested_optimizer": True}


def _engine(module: torch.nn.Module, config: dict[str, Any], optimizer: Any = None, parameters: Any = None) -> Any:
    world = torch.distributed.get_world_size()
    zero = {key: value for key, value in config["zero_optimization"].items() if value != "auto"}
    batch = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 2 * world, "zero_optimization": zero}
    is_trained = "optimizer" in config
    slower = (lambda made: torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1 / (1 + step))) if is_trained else None
    told = {"optimizer": optimizer} if optimizer is not None else {"lr_scheduler": slower}
    config = {name: value for name, value in config.items() if optimizer is None or name != "optimizer"}
    return deepspeed.initialize(model=module, model_parameters=parameters, config={**config, **batch}, **told)[0]


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _own_tensors(engine: Any) -> list[torch.Tensor]:
    """This rank's part of each parameter."""
    return [getattr(parameter, "ds_tensor", parameter).data for parameter in engine.module.parameters()]


def _module_of(captured: CapturedState) -> dict[str, Any]:
    return next(tree["module"] for name, tree in captured.layout["files"].items() if "model_states" in name)


# ---- bytes


def _copied(captured: CapturedState) -> dict[str, bytearray]:
    """What a host copies in its threads."""
    copies = {name: bytearray(buffer.size) for name, buffer in captured.buffers.items()}
    for name, buffer in captured.buffers.items():
        buffer.copy_to(memoryview(copies[name]))
    return copies


def _content(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _digest(contents: Iterable[bytes | bytearray]) -> str:
    return hashlib.sha256(b"|".join(bytes(one) for one in contents)).hexdigest()[:16]


def _write(saved: dict[str, bytearray], layout: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "layout.json").write_text(layout)
    for name, content in saved.items():
        (folder / f"{name}.bytes").write_bytes(content)


def _read(folder: Path) -> tuple[str, dict[str, bytearray]]:
    saved = {file.stem: bytearray(file.read_bytes()) for file in folder.glob("*.bytes")}
    return (folder / "layout.json").read_text(), saved


def _watch(event: str, args: tuple[Any, ...]) -> None:
    is_written = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if is_written or event in ("os.mkdir", "os.rename", "pickle.find_class"):
        _written.append(f"{event} {args[0]}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
