"""Each part of dlrl_verl.cpu is still needed, and with all of them verl's engines train.

A part that is no longer needed fails in `test_it_is_needed`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_rank import be_alone, config, loaded, saved

from dlrl_verl import cpu

# ---- what needs a part


def a_platform_of_verl() -> None:
    from verl.utils import device

    _detect_platform_again()
    assert device.get_device_id() == "cpu"


def engines_for_this_device() -> None:
    from verl.workers.engine import EngineRegistry

    _detect_platform_again()
    assert EngineRegistry.get_engine_cls("language_model", "fsdp2")


def a_process_group() -> None:
    from verl.utils import distributed

    _detect_platform_again()
    be_alone()
    distributed.initialize_global_process_group_ray()


def groups_that_share_a_thread() -> None:
    import torch.distributed as dist

    def loops() -> int:
        """Those who wait for news, by what they wait on: threads have their names a little later."""
        files = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        return files.count("anon_inode:[eventpoll]")

    be_alone()
    dist.init_process_group("gloo", rank=0, world_size=1)
    before = loops()
    for group in [dist.new_group([0]) for _ in range(3)]:
        dist.barrier(group)
    assert loops() == before, f"{loops() - before} more who look for news"


def a_critic_without_flash_attention() -> None:
    from transformers import Qwen2Config
    from verl.utils import model

    folder = os.environ["TINY"] + "/critic"
    config = Qwen2Config.from_pretrained(folder, attn_implementation="sdpa")
    model.load_valuehead_model(local_path=folder, torch_dtype="float32", model_config=config, trust_remote_code=False)


def a_reference_in_memory_that_is_not_pinned() -> None:
    import torch
    from verl.workers.engine.fsdp import transformer_impl

    if transformer_impl.CPUOffloadPolicy(pin_memory=True).pin_memory:
        torch.zeros(1).pin_memory()


def a_version_of_vllm() -> None:
    assert importlib.metadata.version("vllm").endswith("+cpu")


def weights_that_vllm_keeps() -> None:
    import torch
    from vllm.model_executor.layers import utils

    layer = torch.nn.Linear(64, 64, bias=False)
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.numel(), "the weight is gone"


def determinism_without_triton() -> None:
    import torch
    from vllm.model_executor.layers import batch_invariant

    batch_invariant.enable_batch_invariant_mode()
    torch.ones(2, 2).mean(dim=-1)


def attention_of_torch() -> None:
    from transformers import AutoModelForCausalLM

    told = config("ppo_trainer").critic.model.get("override_config", {})
    attention = told.get("attn_implementation", "flash_attention_2")
    AutoModelForCausalLM.from_pretrained(os.environ["TINY"] + "/model", attn_implementation=attention)


def fsdp_of_weights_on_a_cpu() -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    a_process_group()
    if config("ppo_trainer").critic.strategy == "fsdp":
        FullyShardedDataParallel(torch.nn.Linear(2, 2), sync_module_states=True)


def rollouts_that_never_sleep() -> None:
    from vllm.platforms import current_platform

    rollout = config("ppo_trainer").actor_rollout_ref.rollout
    sleeps = rollout.free_cache_engine or rollout.get("enable_sleep_mode", True)
    assert current_platform.is_sleep_mode_available() or not sleeps, "it would sleep"


def tensors_of_megatron() -> None:
    from megatron.core.transformer.utils import get_default_causal_mask

    get_default_causal_mask(4)


def weights_that_megatron_can_optimize() -> None:
    import torch
    from megatron.core import optimizer
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

    _megatron_alone()
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=True)
    model = DistributedDataParallel(_layers(), ddp, torch.nn.Linear(2, 2))
    optimizer.get_megatron_optimizer(optimizer.OptimizerConfig(lr=1.0, use_distributed_optimizer=True), [model])


def weights_that_megatron_offloads() -> None:
    from verl.utils import megatron_utils

    megatron_utils.torch.empty(1, device="cpu", pin_memory=True)


def random_states_of_megatron() -> None:
    import torch
    from megatron.core.tensor_parallel import random

    random._set_cuda_rng_state(torch.Generator().manual_seed(7).get_state())
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(7))), "it is another state"


def layers_without_transformer_engine() -> None:
    from mbridge.core import llm_bridge

    _megatron_alone()
    llm_bridge.get_gpt_decoder_block_spec(_layers(), use_transformer_engine=True)


def names_of_norms() -> None:
    from mbridge.core.bridge import Bridge

    bridge = object.__new__(Bridge)
    assert bridge._weight_name_mapping_mlp("decoder.layers.3.pre_mlp_layernorm.weight")
    assert bridge._weight_name_mapping_other("decoder.layers.3.input_layernorm.weight")


def attention_with_a_mask_of_padding() -> None:
    import torch
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    _megatron_alone()
    rows = torch.ones(4, 3, 2, 8)
    DotProductAttention(_layers(), 1, _causal(), "self")(rows, rows, rows, torch.ones(3, 4, dtype=torch.bool))


def sequences_with_padding() -> None:
    import torch
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    _megatron_alone()
    is_packed = config("ppo_megatron_trainer").critic.model.use_remove_padding
    rows = torch.ones(4, 3, 2, 8)
    attention = DotProductAttention(_layers(), 1, _causal(), "self")
    attention(rows, rows, rows, None, packed_seq_params=PackedSeqParams() if is_packed else None)


def the_older_bridge() -> None:
    if not config("ppo_megatron_trainer").critic.megatron.vanilla_mbridge:
        importlib.import_module("megatron.bridge")


def norms_of_torch() -> None:
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    layers = _layers()
    layers.sequence_parallel = _told_of_layers().get("sequence_parallel", True)
    WrappedTorchNorm(layers, 16)


def softmax_without_apex() -> None:
    from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax

    is_fused = _told_of_layers().get("masked_softmax_fusion", True)
    FusedScaleMaskSoftmax(False, True, _causal(), is_fused, None, True, None).is_kernel_available(None, 2, 2, 32, 32)


def float32_on_megatron() -> None:
    from verl.workers.config import McoreEngineConfig

    assert McoreEngineConfig(dtype="float32").dtype == "float32"


NEEDS = {
    a_platform_of_verl: ("register_platform", "Unknown platform 'cpu'"),
    engines_for_this_device: ("VERL_ENGINE_DEVICE", "No engine registered for device='cpu'"),
    a_process_group: ("engines._one_backend", "cpu:gloo,cpu:gloo"),
    groups_that_share_a_thread: ("engines._one_loop_of_gloo", "3 more who look for news"),
    a_critic_without_flash_attention: ("engines._attention_of_critic", "install trl"),
    a_reference_in_memory_that_is_not_pinned: ("engines._memory_not_pinned", "Cannot access accelerator device"),
    a_version_of_vllm: ("engines._version_of_vllm", "PackageNotFoundError"),
    weights_that_vllm_keeps: ("engines._weights_that_stay", "the weight is gone"),
    determinism_without_triton: ("engines._sums_of_torch", "not subscriptable"),
    rollouts_that_never_sleep: ("without_cuda", "it would sleep"),
    attention_of_torch: ("without_cuda", "FlashAttention2"),
    fsdp_of_weights_on_a_cpu: ("without_cuda", "FSDP needs a non-CPU accelerator"),
    tensors_of_megatron: ("megatron._torch_without_cuda", "not compiled with CUDA"),
    weights_that_megatron_can_optimize: ("megatron._tensors_of_cuda", "torch.cuda.FloatTensor"),
    weights_that_megatron_offloads: ("megatron._memory_not_pinned", "no pinned memory allocator"),
    random_states_of_megatron: ("megatron._random_state", "it is another state"),
    layers_without_transformer_engine: ("megatron._local_layers", "TENorm"),
    names_of_norms: ("megatron._names_of_norms", "pre_mlp_layernorm"),
    attention_with_a_mask_of_padding: ("megatron._mask_of_padding", "must match the size"),
    sequences_with_padding: ("without_cuda", "Packed sequence is not supported"),
    the_older_bridge: ("without_cuda", "No module named 'megatron.bridge'"),
    norms_of_torch: ("without_cuda", "sequence parallel not supported"),
    softmax_without_apex: ("without_cuda", "scaled_masked_softmax_cuda"),
    float32_on_megatron: ("megatron._float32", "float32"),
}
"""The part that each of them needs, and what it says without."""


def _prepare(without: str | None = None) -> None:
    """All parts but one."""
    if without in cpu._ENVIRONMENT:
        del cpu._ENVIRONMENT[without]
    elif without is not None:
        module, _, name = without.rpartition(".")
        setattr(getattr(cpu, module) if module else cpu, name, lambda *args: args[0] if args else None)
    cpu.prepare()


def _detect_platform_again() -> None:
    """There was one as soon as verl was imported."""
    from verl.plugin.platform import platform_manager

    platform_manager._current_platform = None


def _megatron_alone() -> None:
    from megatron.core import parallel_state, tensor_parallel

    a_process_group()
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1)


def _layers() -> Any:
    from megatron.core.transformer import TransformerConfig

    return TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=2, normalization="RMSNorm")


def _told_of_layers() -> Any:
    return config("ppo_megatron_trainer").critic.megatron.override_transformer_config


def _causal() -> Any:
    from megatron.core.transformer.enums import AttnMaskType

    return AttnMaskType.causal


def _with(use: Callable[[], None]) -> None:
    _prepare()
    use()


def _without(part: str, use: Callable[[], None]) -> str:
    """What it says."""
    _prepare(without=part)
    try:
        use()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it works"


@pytest.mark.parametrize("use", NEEDS, ids=lambda use: use.__name__)
def test_it_is_needed(use, imported_process, tiny_assets, monkeypatch):
    monkeypatch.setenv("TINY", str(tiny_assets))
    part, says = NEEDS[use]

    imported_process(_with, use)

    assert says in imported_process(_without, part, use)


# ---- verl's engines


def _resumed(assets: Path, out: Path) -> tuple[list[Any], list[Any]]:
    """Updates of an actor of verl on FSDP after it has saved; and of another one that resumes there."""
    _prepare()
    return saved("fsdp", assets, out), loaded("fsdp", assets, out)


def _resumed_on_megatron(assets: Path, out: Path) -> tuple[list[Any], list[Any], list[Any], str]:
    """The same on Megatron; then without the steps of Adam, and the error for an optimizer that has no state yet."""
    _prepare()
    wanted, resumed = saved("megatron", assets, out), loaded("megatron", assets, out)
    cpu.megatron._set_step = lambda *_: None
    without_steps = loaded("megatron", assets, out)
    cpu.megatron._fill_empty_state = lambda *_: None
    says = "it works"
    try:
        loaded("megatron", assets, out)
    except AssertionError:
        says = traceback.format_exc()
    return wanted, resumed, without_steps, says


def test_fsdp_trains_and_resumes_exactly(new_process, tiny_assets, tmp_path):
    wanted, resumed = new_process(_resumed, tiny_assets, tmp_path)

    assert resumed == wanted


def test_megatron_trains_and_resumes_exactly_and_needs_help_with_adam_of_torch(new_process, tiny_assets, tmp_path):
    wanted, resumed, without_steps, says = new_process(_resumed_on_megatron, tiny_assets, tmp_path)

    assert resumed == wanted
    assert without_steps != wanted
    assert "assert len(steps) == 1" in says
