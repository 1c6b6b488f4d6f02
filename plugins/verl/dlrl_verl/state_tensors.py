"""Plain tensors of this rank: parts of distributed ones, copies into them, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dlrl_core.errors import DlrlError

HOST = "cpu"


def local(tensor: Any) -> torch.Tensor:
    """This rank's part of a tensor that may be spread over ranks, in the same memory."""
    own: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.detach()


def storage_of(tensor: torch.Tensor) -> int:
    """Its storage, which keeps its identity while verl resizes it to nothing and back."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


def copy_into(tensors: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor], *, what: str) -> None:
    """Copy each saved tensor to the one of its name. Raises DlrlError unless all names, types and shapes agree."""
    if tensors.keys() != saved.keys():
        differ = sorted(tensors.keys() ^ saved.keys())
        raise DlrlError(f"the commit is of another model: of '{what}', only one of the two has {differ[:5]}")
    for name, tensor in tensors.items():
        one = saved[name]
        if (tensor.shape, tensor.dtype) != (one.shape, one.dtype):
            has, wants = (f"{list(each.shape)} of {each.dtype}" for each in (one, tensor))
            raise DlrlError(f"the commit is of another model: '{what}.{name}' is {has} there, and {wants} here")
        tensor.copy_(one)


def fits(held: Any, saved: torch.Tensor, on: torch.device) -> bool:
    """Whether this rank's part of `held` is memory for the saved tensor on that kind of device."""
    if not isinstance(held, torch.Tensor):
        return False
    mine = local(held)
    return (mine.shape, mine.dtype, mine.device.type) == (saved.shape, saved.dtype, on.type)
