"""Everything that OpenRLHF, DeepSpeed and vLLM need to run without a GPU. Does nothing where there is one.

Each part says what breaks without it; tests/openrlhf_runs/test_cpu.py tells when that is no longer so.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from typing import Any

from dlrl_adapter_kit.after_import import after_import

_ISA = "AVX512_CORE_BF16"
_CACHE_BYTES = 128 * 2**20
_LOG = logging.getLogger(__name__)


@functools.cache
def is_needed() -> bool:
    """Whether this machine has no GPU that torch can use."""
    import torch

    return not torch.cuda.is_available()


def prepare() -> None:
    """Called in each process of a job before OpenRLHF is imported."""
    if not is_needed():
        return
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", _ISA)  # some machines name AMX and die of it, in any bf16 matmul
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    _calls_of_cuda()
    _flash_attention()
    after_import("openrlhf.utils.distributed_util", _weights_over_gloo)
    after_import("openrlhf.utils.deepspeed.deepspeed", _no_compiler)
    after_import("openrlhf.utils.deepspeed.deepspeed", _no_gathers_at_once)


def without_cuda(args: Any, *, lacks_gpu: bool | None = None) -> Any:
    """The few flags that a CPU can't honour, changed after OpenRLHF has checked all of them; each with a warning.

    `lacks_gpu` is about the processes that have the models; if it is not said, about this one.
    """
    if not (is_needed() if lacks_gpu is None else lacks_gpu):
        return args
    attention, backend = args.ds.attn_implementation, args.vllm.sync_backend
    possible = {
        "ds.attn_implementation": "eager" if "flash_attention" in attention else attention,
        "ds.load_in_4bit": False,
        "ds.use_liger_kernel": False,
        "vllm.enable_sleep": False,  # vLLM: sleep mode is not supported on this platform
        "vllm.sync_backend": "gloo" if backend == "nccl" else backend,
    }
    for name, value in possible.items():
        section, flag = name.split(".")
        said = getattr(getattr(args, section), flag)
        if said != value:
            _LOG.warning("the processes have no GPU: '--%s' is %r, not %r", name, value, said)
            setattr(getattr(args, section), flag, value)
    return args


# ---- in processes of dlrl


class _CpuDevice(str):
    """'cpu' where a device is meant, '0' within 'cuda:{...}'."""

    def __format__(self, spec: str) -> str:
        return "0"


def _calls_of_cuda() -> None:
    """OpenRLHF asks torch.cuda for the current device and waits for its streams, and torch then looks for a driver."""
    import torch

    torch.cuda.current_device = lambda: _CpuDevice("cpu")
    torch.cuda.set_device = lambda *_, **__: None
    torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.current_stream = lambda *_, **__: None


def _flash_attention() -> None:
    """OpenRLHF imports flash_attn at its top; it can't be built without CUDA. Packing needs three functions of it."""
    if importlib.util.find_spec("flash_attn") is not None:
        return

    def module(name: str, *, is_package: bool = False, **attributes: Any) -> None:
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=is_package)
        if is_package:
            made.__path__ = []
        vars(made).update(attributes)
        sys.modules[name] = made

    def missing(*_: Any, **__: Any) -> None:
        raise RuntimeError("ring attention needs flash_attn, which needs a GPU")

    module("flash_attn", is_package=True, __version__="0.0.0")
    module(
        "flash_attn.bert_padding",
        index_first_axis=lambda values, indices: values[indices],
        unpad_input=_unpad,
        pad_input=_pad,
        rearrange=missing,
    )
    module("flash_attn.utils", is_package=True)
    module("flash_attn.utils.distributed", all_gather=missing)


def _unpad(hidden: Any, mask: Any) -> tuple[Any, ...]:
    """The rows that the mask keeps, one after the other; their indices; where each sequence ends; the longest."""
    import torch

    lengths = mask.sum(dim=-1, dtype=torch.int32)
    kept = mask.flatten().nonzero().flatten()
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden.flatten(0, 1)[kept], kept, ends, int(lengths.max()), lengths


def _pad(rows: Any, kept: Any, batch: int, length: int) -> Any:
    """Rows back to where they were; zeros elsewhere."""
    whole = rows.new_zeros((batch * length, *rows.shape[1:]))
    return whole.index_copy(0, kept, rows).unflatten(0, (batch, length))


def _weights_over_gloo(module: Any) -> None:
    """Weights go to vLLM through a group of PyNccl, which needs CUDA."""
    module.stateless_init_process_group = _GlooGroup


class _GlooGroup:
    """A group beside torch's default one, over gloo."""

    def __init__(self, address: str, port: int, rank: int, world_size: int, _device: Any = None) -> None:
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group

        self._group = stateless_init_torch_distributed_process_group(
            host=address, port=int(port), rank=rank, world_size=world_size, backend="gloo"
        )

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        import torch.distributed as dist

        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = src, 0
        self._group.broadcast([tensor], options).wait()


def _no_compiler(module: Any) -> None:
    """DeepSpeed compiles its fused Adam and its shared-memory all-reduce for the CPU: minutes, and 4 GB."""
    strategy = module.DeepspeedStrategy
    set_up, train_config = strategy.setup_distributed, strategy.get_ds_train_config

    def setup_distributed(self: Any, *args: Any, **kwargs: Any) -> Any:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        return set_up(self, *args, **kwargs)

    def get_ds_train_config(self: Any, optim_dict: Any = None, **kwargs: Any) -> Any:
        config = train_config(self, optim_dict, **kwargs)
        if optim_dict is not None and not self.adam_offload:
            config["optimizer"]["params"]["torch_adam"] = True
        return config

    strategy.setup_distributed, strategy.get_ds_train_config = setup_distributed, get_ds_train_config


def _no_gathers_at_once(module: Any) -> None:
    """After a step with ZeRO-3, DeepSpeed gathers all small parameters at once and waits for the last one only.

    With NCCL the others are done by then; with gloo they may not be, and some steps train on garbage (NaN in 3 of 50
    cycles). No parameter is small enough for it here: each is gathered when it is needed, and waited for.
    """
    strategy = module.DeepspeedStrategy
    train_config = strategy.get_ds_train_config

    def get_ds_train_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = train_config(self, *args, **kwargs)
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
        return config

    strategy.get_ds_train_config = get_ds_train_config


# ---- in processes of vLLM


def prepare_engine() -> None:
    """Called in an engine's process before its model is loaded."""
    prepare()
    if not is_needed():
        return
    import torch
    import vllm.model_executor.layers.utils as layers

    torch.cpu._is_amx_tile_supported = lambda: False  # see ONEDNN_MAX_CPU_ISA: vLLM's attention asks here

    def keep_weight(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    # vLLM packs each weight for the CPU and drops the original: new weights would raise, or be ignored.
    layers.dispatch_cpu_unquantized_gemm = keep_weight


def engine_options() -> dict[str, Any]:
    """What an engine is started with besides OpenRLHF's own: vLLM would take gigabytes of memory for its cache."""
    return {"kv_cache_memory_bytes": _CACHE_BYTES} if is_needed() else {}


def engine_worker(stock: type) -> type:
    """OpenRLHF's extension of a vLLM worker, without CUDA: it makes room for new weights on device 'cuda'."""
    return _cpu_worker(stock) if is_needed() else stock


def _cpu_worker(stock: Any) -> type:
    class CpuWorker(stock):  # type: ignore[misc]
        def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
            import torch

            weight = torch.empty(shape, dtype=dtype)
            self._model_update_group.broadcast(weight, src=0)
            self.model_runner.model.load_weights(weights=[(name, weight)])

    return CpuWorker
