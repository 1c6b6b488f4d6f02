"""Each part of dlrl_openrlhf.cpu is still needed. One that fails here tells which part can go."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest


def answers_in_the_place_of_torch_cuda() -> None:
    import torch

    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.current_device()


def a_stub_of_flash_attn() -> None:
    with pytest.raises(ModuleNotFoundError) as missing:
        import openrlhf.models.ring_attn_utils  # noqa: F401
    assert (missing.value.name or "").startswith("flash_attn"), missing.value


def weights_that_vllm_keeps() -> None:
    from vllm.model_executor.layers import utils

    assert "remove_weight" in inspect.getsource(utils.dispatch_cpu_unquantized_gemm)


def no_sleep() -> None:
    from vllm.platforms import current_platform

    assert not current_platform.is_sleep_mode_available()


def weights_over_gloo() -> None:
    from openrlhf.utils import distributed_util

    assert "PyNccl" in inspect.getsource(distributed_util.stateless_init_process_group)


def no_compiler_for_deepspeed() -> None:
    import deepspeed
    from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy

    assert "torch_adam" not in inspect.getsource(DeepspeedStrategy)
    assert "deepspeed_shm_comm" in deepspeed.ops.__compatible_ops__


def room_for_weights_on_the_cpu() -> None:
    from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap

    assert 'device="cuda"' in inspect.getsource(WorkerWrap.update_weight)


def zero_3_without_gathers_at_once() -> None:
    from deepspeed.runtime.zero.partition_parameters import Init

    assert "launch_handles[-1].wait()" in inspect.getsource(Init._allgather_params_coalesced)
    assert _threshold() == "auto"


def _threshold() -> object:
    """Up to which size DeepSpeed gathers parameters at once after a step, as OpenRLHF tells it."""
    from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy

    args = SimpleNamespace(ds=SimpleNamespace(param_dtype="bf16"), train=SimpleNamespace())
    config = DeepspeedStrategy(zero_stage=3, args=args).get_ds_train_config()
    return config["zero_optimization"]["stage3_param_persistence_threshold"]


AS_IT_IS = (answers_in_the_place_of_torch_cuda, a_stub_of_flash_attn, weights_that_vllm_keeps, no_sleep)
WHEN_IMPORTED = (
    weights_over_gloo,
    no_compiler_for_deepspeed,
    room_for_weights_on_the_cpu,
    zero_3_without_gathers_at_once,
)
"""What is seen once OpenRLHF can be imported at all."""


def main() -> None:
    """Run as a program: what is no longer needed, by name. All in one process: to import OpenRLHF takes long."""
    failed = {}
    for part in (*AS_IT_IS, _let_openrlhf_be_imported, *WHEN_IMPORTED, _zero_3_is_prepared):
        try:
            part()
        except BaseException:
            failed[part.__name__] = traceback.format_exc()
    print(json.dumps(failed))


def _let_openrlhf_be_imported() -> None:
    from dlrl_openrlhf import cpu

    cpu._calls_of_cuda()
    cpu._flash_attention()


def _zero_3_is_prepared() -> None:
    from dlrl_openrlhf import cpu

    cpu.prepare()
    assert _threshold() == 0


@pytest.fixture(scope="module")
def failed() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "import test_cpu; test_cpu.main()"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert _let_openrlhf_be_imported.__name__ not in found, found
    return found


@pytest.mark.parametrize("part", [*AS_IT_IS, *WHEN_IMPORTED], ids=lambda part: part.__name__)
def test_it_is_needed(part, failed):
    assert part.__name__ not in failed, failed[part.__name__]


def test_with_zero_3_no_parameters_are_gathered_at_once(failed):
    assert _zero_3_is_prepared.__name__ not in failed, failed[_zero_3_is_prepared.__name__]
