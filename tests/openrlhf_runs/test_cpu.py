"""Each part of dlrl_openrlhf.cpu is still needed. One that fails here tells which part can go."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDS = {
    "a stub of flash_attn": """
try:
    import openrlhf.models.ring_attn_utils
except ModuleNotFoundError as error:
    assert error.name.startswith("flash_attn"), error
else:
    raise SystemExit("OpenRLHF is imported without flash_attn")
""",
    "answers in the place of torch.cuda": """
import torch
try:
    torch.cuda.current_device()
except (AssertionError, RuntimeError):
    pass
else:
    raise SystemExit("torch.cuda has a current device")
""",
    "weights over gloo": """
from dlrl_openrlhf import cpu
cpu._calls_of_cuda(); cpu._flash_attention()
import inspect
from openrlhf.utils import distributed_util
assert "PyNccl" in inspect.getsource(distributed_util.stateless_init_process_group)
""",
    "no compiler for DeepSpeed": """
from dlrl_openrlhf import cpu
cpu._calls_of_cuda(); cpu._flash_attention()
import inspect
from openrlhf.utils.deepspeed.deepspeed import DeepspeedStrategy
assert "torch_adam" not in inspect.getsource(DeepspeedStrategy)
import deepspeed
assert "deepspeed_shm_comm" in deepspeed.ops.__compatible_ops__
""",
    "weights that vLLM keeps": """
import inspect
import vllm.model_executor.layers.utils as layers
assert "remove_weight" in inspect.getsource(layers.dispatch_cpu_unquantized_gemm)
""",
    "room for weights on the CPU": """
from dlrl_openrlhf import cpu
cpu._calls_of_cuda(); cpu._flash_attention()
import inspect
from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
assert 'device="cuda"' in inspect.getsource(WorkerWrap.update_weight)
""",
    "no sleep": """
from vllm.platforms import current_platform
assert not current_platform.is_sleep_mode_available()
""",
}


@pytest.mark.parametrize("part", NEEDS)
def test_it_is_needed(part):
    done = subprocess.run([sys.executable, "-c", NEEDS[part]], capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{part}: {done.stderr.strip().splitlines()[-1:]}"
