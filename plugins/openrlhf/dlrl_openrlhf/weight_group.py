"""The group that weights go through from policy to engines, when it is left."""

from __future__ import annotations

from typing import Any


def end_group(group: Any) -> None:
    """End what still waits in this group, and free it. Nothing happens to one over gloo, or to none.

    A group of NCCL that nobody refers to any more lives on: its kernels wait for a peer that died, and its memory
    stays taken.
    """
    destroy = getattr(group, "destroy", None)
    if destroy is not None:
        destroy()
