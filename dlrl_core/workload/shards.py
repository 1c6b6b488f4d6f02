"""Splitting a call's arguments over the workloads of a role, and joining pieces again. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Whole:
    """An argument that every target gets as it is."""

    value: Any


def whole(value: Any) -> Any:
    """Mark an argument that must not be split: `self.RG_ACTOR.load(whole([w1, w2]))`."""
    return Whole(value)


def split_range(length: int, parts: int) -> list[slice]:
    """Slices that cut `length` items as evenly as possible, larger pieces first, order kept."""
    base, extra = divmod(length, parts)
    starts = [rank * base + min(rank, extra) for rank in range(parts + 1)]
    return [slice(starts[rank], starts[rank + 1]) for rank in range(parts)]


def split_value(value: Any, parts: int) -> list[Any] | None:
    """The value cut into `parts` pieces in rank order, or None if every target gets all of it.

    Cut are batches with at least one item for each target: lists, tuples, arrays and tensors (by their first
    dimension), mappings whose values are all such batches of one length, and objects with `chunk` or `split`.
    """
    length = _length(value)
    return None if length is None or length < parts else _cut(value, parts)


def _length(value: Any) -> int | None:
    """How many items the value can be cut into; None if it can't be cut."""
    if isinstance(value, str | bytes | bytearray | Whole) or hasattr(value, "_fields"):  # a named tuple is a record
        return None
    if _has_slices(value):
        return len(value)
    if isinstance(value, Mapping):
        lengths = {_length(item) for item in value.values()}
        return lengths.pop() if len(lengths) == 1 else None
    return len(value) if _cutting_method(value) else None


def _has_slices(value: Any) -> bool:
    return isinstance(value, list | tuple) or _is_array(value)


def _is_array(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return isinstance(shape, Sequence) and len(shape) > 0 and hasattr(value, "__getitem__")


def _cutting_method(value: Any) -> str | None:
    names = ("chunk", "split") if hasattr(value, "__len__") else ()
    return next((name for name in names if callable(getattr(value, name, None))), None)


def _cut(value: Any, parts: int) -> list[Any]:
    if _has_slices(value):  # before Mapping: a batch of tensors may be both
        return [value[piece] for piece in split_range(len(value), parts)]
    if isinstance(value, Mapping):
        cuts = {key: _cut(item, parts) for key, item in value.items()}
        return [{key: pieces[rank] for key, pieces in cuts.items()} for rank in range(parts)]
    method = _cutting_method(value) or ""
    pieces = list(getattr(value, method)(parts))
    if len(pieces) != parts:
        raise ValueError(
            f"'{type(value).__name__}.{method}({parts})' returned {len(pieces)} pieces; it must return {parts}"
        )
    return pieces


def join_pieces(pieces: Sequence[Any]) -> Any:
    """The pieces of a batch as one batch, the reverse of `split_value`; a list of them if they can't be joined."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    if isinstance(first, list):
        return [item for piece in pieces for item in piece]
    if isinstance(first, tuple):
        return tuple(item for piece in pieces for item in piece)
    if isinstance(first, Mapping):
        return {key: join_pieces([piece[key] for piece in pieces]) for key in first}
    concat = getattr(type(first), "concat", None)
    if callable(concat):
        return concat(list(pieces))
    if _is_array(first):
        return _join_arrays(pieces)
    return list(pieces)


def _join_arrays(pieces: Sequence[Any]) -> Any:
    if type(pieces[0]).__module__.startswith("torch"):
        return sys.modules["torch"].cat(list(pieces))  # imported already, since these are tensors
    import numpy as np

    return np.concatenate(list(pieces))


@dataclass(frozen=True)
class ShardPart:
    """An argument that goes from workload to workload: the results of an earlier call that this target gets.

    `refs` are results of consecutive ranks; the target joins them, and keeps piece `piece` of `pieces`.
    """

    refs: tuple[Any, ...]
    piece: int = 0
    pieces: int = 1
    is_list: bool = False
    """Keep the results as a list in rank order instead of joining them."""

    def resolve(self, fetch: Callable[[list[Any]], list[Any]]) -> Any:
        values = fetch(list(self.refs))
        if self.is_list:
            return values
        joined = join_pieces(values)
        if self.pieces == 1:
            return joined
        cut = split_value(joined, self.pieces)
        return joined if cut is None else cut[self.piece]


def parts_for(refs: Sequence[Any], targets: int) -> list[ShardPart] | None:
    """How the results of one call go to the targets of the next in rank order; None if they do not line up."""
    if len(refs) % targets == 0:
        size = len(refs) // targets
        return [ShardPart(tuple(refs[rank * size : (rank + 1) * size])) for rank in range(targets)]
    if targets % len(refs) == 0:
        pieces = targets // len(refs)
        return [ShardPart((refs[rank // pieces],), rank % pieces, pieces) for rank in range(targets)]
    return None
