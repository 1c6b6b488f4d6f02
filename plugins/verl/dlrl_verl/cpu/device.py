"""The CPU in the place of `torch.cuda`, and as a platform of verl."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import psutil
import torch

NAME = "cpu"


@functools.cache
def is_needed() -> bool:
    """Whether this machine has no GPU that torch can use."""
    return not torch.cuda.is_available()


class _DeviceId(str):
    """'cpu' where a device is meant, '0' within 'cpu:{...}'."""

    def __format__(self, spec: str) -> str:
        return "0"


_THE_DEVICE = _DeviceId(NAME)


class CpuDevice(types.ModuleType):
    """What verl and Megatron ask of `torch.cuda`, answered for the CPU. `torch.cpu` has about half of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def current_device(self) -> str:
        return _THE_DEVICE

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"  # verl has a table of what each device can compute

    def empty_cache(self) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    @property
    def random(self) -> CpuDevice:
        return self

    def get_rng_state(self, device: Any = None) -> Any:
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, device: Any = None) -> None:
        torch.set_rng_state(state)

    def memory_allocated(self, device: Any = None) -> int:
        return psutil.Process().memory_info().rss

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total


CPU_AS_CUDA = CpuDevice("torch.cuda")


def register_platform(manager: Any) -> None:
    """verl knows platforms for cuda, npu and rocm, and takes others; without one it asks torch.cuda for everything."""

    class CpuPlatform(_CpuAnswers, manager.PlatformBase):  # type: ignore[misc]
        """The CPU as a platform of verl."""

    manager.PlatformRegistry.register(platform=NAME)(CpuPlatform)


class _CpuAnswers:
    """What verl asks of a platform, answered for the CPU."""

    device_name = vendor_name = NAME
    device_module = CPU_AS_CUDA

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return _THE_DEVICE

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # a logical one: places are counted as if there were GPUs

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False  # weights go to vLLM through /dev/shm

    def cudart(self) -> None: ...
