"""Trees of tensors and plain values as a commit takes them: tensors by reference, all else as JSON. Nothing is pickled.

A tensor is kept as a view of its storage, so that tensors which share memory are kept once and share it again after a
restore. Where the tensors of a tree use less than half of a storage, each of them is kept by itself.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlrl_core.workload.captured_state import CapturedState, HostBuffer, SavedState, StateBuffer

_KIND = "$"
"""The key that marks an encoded value; a dict of the user's that has it is written as pairs."""
_PLAIN = (str, bool, int, type(None))


@dataclass(frozen=True)
class TensorBuffer:
    """A tensor on a device, or one that is not contiguous."""

    tensor: torch.Tensor

    @property
    def size(self) -> int:
        return int(self.tensor.numel() * self.tensor.element_size())

    def copy_to(self, target: memoryview) -> None:
        if self.size:
            flat = torch.frombuffer(target, dtype=self.tensor.dtype)
            flat.view(self.tensor.shape).copy_(self.tensor)

    def part(self, start: int, size: int) -> TensorBuffer:
        flat = self.tensor.detach().contiguous().flatten().view(torch.uint8)
        return TensorBuffer(flat[start : start + size])


def capture_tree(tree: Any, *, alike: Callable[[str], str | None] = lambda _: None) -> CapturedState:
    """The tree as it is now, by reference. Raises TypeError with the place of a value that can't be written.

    `alike` returns, for the path of a tensor such as 'module.weight', the name of its content if other ranks have the
    same; None if not. A storage is alike if all of its tensors are.
    """
    storages = _storages(tree)
    encoder = _Encoder(whole={key for key, one in storages.items() if one.is_kept_whole})
    layout = encoder.encode(tree, "")
    names = {name: {alike(path) for path in paths} for name, paths in encoder.paths.items()}
    same = {name: _short("+".join(sorted(map(str, found)))) for name, found in names.items() if None not in found}
    return CapturedState(layout=layout, buffers=encoder.buffers, alike=same)


def tree_of(saved: SavedState) -> Any:
    """The tree again. Its tensors are on the host, are views of the commit's memory, and must not be changed."""
    return _Decoder(saved.buffers).decode(saved.layout)


def _short(name: str) -> str:
    """A flat buffer has hundreds of tensors: the name of one tensor as it is, of more a digest of all."""
    return name if "+" not in name else hashlib.sha256(name.encode()).hexdigest()[:32]


@dataclass
class _Storage:
    size: int
    used: int = 0

    @property
    def is_kept_whole(self) -> bool:
        return 2 * self.used >= self.size


def _storages(tree: Any) -> dict[int, _Storage]:
    """All storages of the tree's tensors, and how many bytes of each the tensors use; shared bytes count each time."""
    found: dict[int, _Storage] = {}
    for tensor in _tensors(tree):
        storage = tensor.untyped_storage()
        one = found.setdefault(storage.data_ptr(), _Storage(storage.nbytes()))
        one.used += tensor.numel() * tensor.element_size()
    return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if _is_plain(value):
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether all of a tensor is its view of a storage."""
    return type(tensor.data) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_quantized


class _Encoder:
    def __init__(self, *, whole: set[int]) -> None:
        self._whole = whole
        self.buffers: dict[str, StateBuffer] = {}
        self.paths: dict[str, list[str]] = {}
        """The tensors that are in each buffer."""
        self._names: dict[int, str] = {}

    def encode(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.ndarray | np.generic):  # before float: a float64 of numpy is one
            return self._array(np.asarray(value), path, is_scalar=isinstance(value, np.generic))
        if isinstance(value, float):
            return value if math.isfinite(value) else {_KIND: "float", "hex": value.hex()}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple | torch.Size) and not hasattr(value, "_fields"):
            kind = "list" if isinstance(value, list) else "tuple"
            items = [self.encode(one, f"{path}[{index}]") for index, one in enumerate(value)]
            return items if kind == "list" else {_KIND: kind, "items": items}
        if isinstance(value, bytes):
            return {_KIND: "bytes", "hex": value.hex()}
        if isinstance(value, torch.dtype):
            return {_KIND: "dtype", "name": str(value).removeprefix("torch.")}
        what = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"a commit can't hold '{path.lstrip('.')}': it is a {what}, whose state dlrl does not know")

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str for key in value) and _KIND not in value:
            return {key: self.encode(one, f"{path}.{key}") for key, one in value.items()}
        pairs = [[self.encode(key, f"{path}.keys"), self.encode(one, f"{path}.{key}")] for key, one in value.items()]
        return {_KIND: "pairs", "pairs": pairs}

    def _tensor(self, tensor: torch.Tensor, path: str) -> Any:
        tensor = tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor.detach()
        if not _is_plain(tensor):
            what = f"it is a {type(tensor).__name__} of layout {tensor.layout}"
            raise TypeError(f"a commit can't hold '{path.lstrip('.')}': {what}; give this rank's plain part of it")
        layout = {_KIND: "tensor", "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        if tensor.numel() == 0:
            return layout
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            raise RuntimeError(f"a commit can't hold '{path.lstrip('.')}': the memory of this tensor is freed")
        if storage.data_ptr() in self._whole:
            name = self._stored(storage, path)
            view = {"offset": tensor.storage_offset(), "stride": list(tensor.stride())}
            return {**layout, "buffer": name, **view}
        return {**layout, "buffer": self._named(_buffer_of(tensor), path)}

    def _stored(self, storage: torch.UntypedStorage, path: str) -> str:
        name = self._names.get(storage.data_ptr())
        if name is None:
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            name = self._names[storage.data_ptr()] = self._named(_buffer_of(whole), path)
        else:
            self.paths[name].append(path.lstrip("."))
        return name

    def _array(self, array: np.ndarray[Any, Any], path: str, *, is_scalar: bool) -> Any:
        if array.dtype.hasobject:
            raise TypeError(f"a commit can't hold '{path.lstrip('.')}': it is an array of Python objects")
        copied = np.array(array, order="C")  # small: a random state, a counter
        layout = {_KIND: "scalar" if is_scalar else "array", "dtype": array.dtype.str, "shape": list(array.shape)}
        if copied.size == 0:
            return layout
        buffer = HostBuffer(copied.ctypes.data, copied.nbytes, copied)
        return {**layout, "buffer": self._named(buffer, path)}

    def _named(self, buffer: StateBuffer, path: str) -> str:
        name = str(len(self.buffers))
        self.buffers[name], self.paths[name] = buffer, [path.lstrip(".")]
        return name


def _buffer_of(tensor: torch.Tensor) -> StateBuffer:
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        return HostBuffer(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)
    return TensorBuffer(tensor)


class _Decoder:
    def __init__(self, buffers: Mapping[str, memoryview]) -> None:
        self._buffers = buffers

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(one) for one in value]
        if not isinstance(value, dict):
            return value
        if _KIND not in value:
            return {key: self.decode(one) for key, one in value.items()}
        decode: Callable[[dict[str, Any]], Any] = getattr(self, f"_{value[_KIND]}")
        return decode(value)

    def _float(self, value: dict[str, Any]) -> float:
        return float.fromhex(value["hex"])

    def _tuple(self, value: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self.decode(one) for one in value["items"])

    def _bytes(self, value: dict[str, Any]) -> bytes:
        return bytes.fromhex(value["hex"])

    def _dtype(self, value: dict[str, Any]) -> Any:
        return getattr(torch, value["name"])

    def _pairs(self, value: dict[str, Any]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(one) for key, one in value["pairs"]}

    def _tensor(self, value: dict[str, Any]) -> torch.Tensor:
        dtype, shape = getattr(torch, value["dtype"]), tuple(value["shape"])
        if "buffer" not in value:
            return torch.empty(shape, dtype=dtype)
        memory = self._buffers[value["buffer"]]
        whole = torch.frombuffer(memory[: len(memory) // dtype.itemsize * dtype.itemsize], dtype=dtype)
        if "stride" not in value:
            return whole.view(shape)
        return whole.as_strided(shape, value["stride"], value["offset"])

    def _array(self, value: dict[str, Any]) -> np.ndarray[Any, Any]:
        if "buffer" not in value:
            return np.empty(value["shape"], dtype=value["dtype"])
        return np.frombuffer(self._buffers[value["buffer"]], dtype=value["dtype"]).reshape(value["shape"])

    def _scalar(self, value: dict[str, Any]) -> Any:
        return self._array(value)[()]
