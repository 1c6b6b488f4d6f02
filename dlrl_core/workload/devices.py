"""The devices of this process: which Ray gave it, and which it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "ASCEND_RT_VISIBLE_DEVICES",
)
"""What Ray may set for the kinds of devices we place; which of them depends on the node's vendor."""


def own_devices(device_type: str) -> tuple[str, ...]:
    """The ids of the real devices that this process was given, such as ('3',)."""
    import ray

    return tuple(ray.get_runtime_context().get_accelerator_ids().get(device_type, ()))


def show_devices(device_type: str, ids: Sequence[str]) -> None:
    """Let this process see exactly these devices, in this order: before any library looks for them.

    Nothing happens where the user told Ray to keep its hands off, and for CPUs.
    """
    manager = _manager(device_type)
    if manager is not None:
        manager.set_current_process_visible_accelerator_ids(list(ids))


def left_alone() -> dict[str, str]:
    """The variables that make Ray, and us, leave a process all devices of its node."""
    return {f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in VARIABLES}


def _manager(device_type: str) -> Any:
    """Ray's own knowledge of each vendor's variable and its syntax."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    return None if device_type == "CPU" else get_accelerator_manager_for_resource(device_type)
