"""Arguments as they were sent: what the caller does to a batch after a call does not change what a replay sends."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.cloudpickle import CloudPickler

from dlrl_core.workload.invocation import cutting_method

LARGEST_KEPT = 100 * 1024
"""What Ray sends inside a call; anything larger goes to the object store."""
_FIXED = frozenset({type(None), str, bytes, bool, int, float})


class KeptPieces(list[Callable[[], Any]]):
    """An argument in the pieces that its targets get."""


def kept(value: Any) -> Callable[[], Any]:
    """Returns the value as it is now. Small ones are pickled for that; others are put into Ray's object store, where
    Ray would put them for the call itself."""
    if value is None or isinstance(value, str | bytes | int | float | ObjectRef):
        return lambda: value
    if type(value) in (list, tuple) and _FIXED.issuperset(map(type, value)):
        value = value[:]
        return lambda: value
    file = _SmallFile()
    try:
        _SmallPickler(file).dump(value)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - too large, or with references, which only Ray can keep; or user code can't be pickled
        value = ray.put(value)
        return lambda: value
    return functools.partial(pickle.loads, file.getvalue())


class _SmallFile(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > LARGEST_KEPT:
            raise pickle.PicklingError
        return super().write(data)


class _SmallPickler(CloudPickler):
    """Does not begin with what may be large as a whole: arrays, and batches that cut themselves."""

    def reducer_override(self, obj: Any) -> Any:
        size = getattr(obj, "nbytes", None)
        is_whole = isinstance(obj, ObjectRef | ActorHandle) or cutting_method(obj) is not None
        if size > LARGEST_KEPT if isinstance(size, int) else is_whole:
            raise pickle.PicklingError
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
