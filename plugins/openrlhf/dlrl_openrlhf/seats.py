"""The devices of an engine that several workloads sit on together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlrl_core.errors import SpecError


class Seat(NamedTuple):
    """Where one workload sits."""

    name: str
    node_id: str
    device_ids: tuple[str, ...]


def devices_of(seats: Sequence[Seat], size: int) -> list[str]:
    """The devices for an engine that runs in parallel over `size` of them, in order of the workloads."""
    names = ", ".join(f"'{seat.name}'" for seat in seats)
    if len({seat.node_id for seat in seats}) > 1:
        where = ", ".join(f"'{seat.name}' on node {seat.node_id[:8]}" for seat in seats)
        raise SpecError(
            [
                f"an engine needs its {size} devices ('--vllm.tensor_parallel_size') on one node: {where}; "
                "let it divide the devices of a node (device_per_node)"
            ]
        )
    devices = [device for seat in seats for device in seat.device_ids]
    if len(devices) != size:
        raise SpecError([f"an engine needs {size} devices ('--vllm.tensor_parallel_size'), {names} have {devices}"])
    return devices
