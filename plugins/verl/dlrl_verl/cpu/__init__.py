"""Everything that verl, Megatron and vLLM need to run without a GPU. Does nothing where there is one.

Each part says what breaks without it; tests/verl_runs/test_cpu.py tells when that is no longer so.
"""

from __future__ import annotations

import functools
import os
import sys

from dlrl_adapter_kit.after_import import after_import
from dlrl_verl.cpu.device import NAME, is_needed, register_platform
from dlrl_verl.cpu.engines import prepare_engines
from dlrl_verl.cpu.megatron import prepare_megatron
from dlrl_verl.cpu.settings import without_cuda

__all__ = ["is_needed", "prepare", "without_cuda"]

_ENVIRONMENT = {
    "VERL_PLATFORM": NAME,
    "VERL_ENGINE_DEVICE": "cuda",  # verl's engines are registered for cuda and npu, though they run on any device
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",  # some machines name AMX and die of it, in any bf16 matmul
    "TORCHDYNAMO_DISABLE": "1",  # torch.compile needs a C++ compiler here, and minutes
}
_ATTACHED = "dlrl_verl.cpu.attached"


@functools.cache
def prepare() -> None:
    """Called in each process of a job before verl is imported. Processes that it starts are prepared too."""
    if not is_needed():
        return
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if (dynamo := sys.modules.get("torch._dynamo.config")) is not None:
        dynamo.disable = True  # type: ignore[attr-defined]  # it has read the environment already
    _attach_to_verl()
    after_import("verl.plugin.platform.platform_manager", register_platform)
    prepare_engines()
    prepare_megatron()


def _attach_to_verl() -> None:
    """verl imports modules of this list first, in any process; there is no other way into those that vLLM starts."""
    modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    if _ATTACHED not in modules:
        os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, [*modules, _ATTACHED]))
