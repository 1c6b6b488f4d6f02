"""How a trainer's call reaches the workloads of a role: `@trainer_invocation`, methods, and how arguments are split."""

from __future__ import annotations

import enum
import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlrl_core.errors import SpecError, StaleTermError
from dlrl_core.hints import did_you_mean
from dlrl_core.spec import ClassRef

_ATTRIBUTE = "__dlrl_invocation__"
_Method = TypeVar("_Method", bound=Callable[..., Any])


def load_class(ref: ClassRef) -> type:
    """The class of that name, undecorated. Raises what the import raises, or AttributeError or TypeError."""
    module = importlib.import_module(ref.module)
    if not hasattr(module, ref.class_name):
        hint = did_you_mean(ref.class_name, dir(module)).rstrip(";")
        raise AttributeError(f"module '{ref.module}' has no class '{ref.class_name}'{hint}")
    found = undecorated(getattr(module, ref.class_name))
    if not inspect.isclass(found):
        raise TypeError(f"'{ref}' is a {type(found).__name__}, not a class")
    return found


def undecorated(found: object) -> object:
    """The class below a `@ray.remote`; an object without that decorator is returned as it is."""
    metadata = getattr(found, "__ray_metadata__", None)
    if metadata is None:
        return found
    modified = metadata.modified_class
    # Ray derives a class of the same name from the user's and adds its own methods to it; the user's is the base.
    return next((base for base in modified.__mro__[1:] if base.__name__ == modified.__name__), modified)


class Target(enum.StrEnum):
    """Which workloads of a role a call reaches."""

    ALL = "ALL"
    RANK0 = "RANK0"


@dataclass(frozen=True, kw_only=True)
class InvocationOptions:
    """The seven attributes of the guide, and two more. Methods without the decorator are called with these defaults."""

    blocking: bool = True
    is_async: bool = False
    timeout: float = 10
    target: Target = Target.ALL
    auto_shard: bool = True
    pre_func: Callable[..., Any] | None = None
    post_func: Callable[..., Any] | None = None
    replay: bool = True
    """Whether a call that a death interrupted may be repeated; if not, more of the job is restarted."""
    changes_state: bool = True
    """Whether the method changes what a commit holds; one that only reads it runs while a commit is being copied."""

    @classmethod
    def checked(cls, **given: Any) -> InvocationOptions:
        """Options from the attributes a user wrote. Raises SpecError with all problems found."""
        problems = list(_problems(given))
        if problems:
            raise SpecError(problems)
        if "target" in given:
            given["target"] = Target(given["target"])
        return cls(**given)


def _problems(given: Mapping[str, Any]) -> list[str]:
    problems = []
    known = list(InvocationOptions.__dataclass_fields__)
    for name, value in given.items():
        if name not in known:
            hint = did_you_mean(name, known)
            problems.append(f"trainer_invocation has no attribute '{name}'{hint} known: {', '.join(known)}")
        elif name in ("blocking", "is_async", "auto_shard", "replay", "changes_state") and not isinstance(value, bool):
            problems.append(f"trainer_invocation {name}={value!r}; it must be True or False")
        elif name in ("pre_func", "post_func") and value is not None and not callable(value):
            problems.append(f"trainer_invocation {name}={value!r}; it must be a function or None")
    timeout = given.get("timeout", 1)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        problems.append(f"trainer_invocation timeout={timeout!r}; it must be a number of seconds greater than 0")
    if given.get("target", "ALL") not in tuple(Target):
        problems.append(f"trainer_invocation target={given['target']!r}; it must be 'ALL' or 'RANK0'")
    return problems


def trainer_invocation(
    blocking: bool = True,
    is_async: bool = False,
    timeout: float = 10,
    target: str = Target.ALL,
    auto_shard: bool = True,
    pre_func: Callable[..., Any] | None = None,
    post_func: Callable[..., Any] | None = None,
    replay: bool = True,
    changes_state: bool = True,
    **unknown: Any,
) -> Callable[[_Method], _Method]:
    """Set how the trainer's calls of this method are made.

    - `blocking`: wait for the results; False returns a handle at once.
    - `is_async`, `timeout`: wait at most `timeout` seconds for all targets, then raise CallTimeoutError.
    - `target`: 'ALL' workloads of the role, or 'RANK0' only.
    - `auto_shard`: split batches over the targets in rank order.
    - `pre_func`: gets the arguments in the trainer's process and returns the ones to send.
    - `post_func`: gets the list of results in rank order; what it returns is the call's result.
    - `replay`: a call that was interrupted by the death of its workload may be repeated on the restarted one.
    - `changes_state`: False for a method that only reads what a commit holds: it need not wait for a commit's copy.
    """
    given = {**locals()}
    options = InvocationOptions.checked(**given.pop("unknown"), **given)

    def mark(method: _Method) -> _Method:
        setattr(method, _ATTRIBUTE, options)
        return method

    return mark


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """What the trainer's process needs to know of a method, since it does not import the class."""

    options: InvocationOptions
    is_coroutine: bool = False
    slot: int | None = None
    """Number of the WorkloadHost method `slot_<n>` that runs this one: a call then does not have to send the name."""


STATE_METHODS = (("capture_state", "restore_state"), ("save_state", "load_state"))
"""A class with both methods of one of these pairs has state: named buffers, or files that it writes itself."""

SLOTS = 32
"""How many methods of a class have a slot; the others are called by name."""

FAMILIES = 2
"""Each slot exists so often: a trainer calls those of its term's family. Ray takes 0.1 ms for each in each process."""


@dataclass
class Term:
    """The trainer whose calls a workload answers, by its incarnation. Calls of an earlier one are refused."""

    value: int

    def check(self, term: int) -> None:
        if term < self.value:
            raise StaleTermError(f"a trainer was replaced: its term is {term}, that of its successor {self.value}")

    def method_of(self, call: str) -> str:
        """The method of a call by name, which has the term in it unless another workload made it."""
        term, _, method = call.rpartition(":")
        self.check(int(term or self.value))
        return method


def slot_name(slot: int, term: int) -> str:
    """The host's method behind a slot, as the trainer of that term calls it."""
    return f"slot_{term % FAMILIES}_{slot}"


def add_slots(host: type) -> None:
    """Sending a method's name as an argument costs a fifth of an empty call; a slot looks it up in its process."""
    for slot, family in itertools.product(range(SLOTS), range(FAMILIES)):
        setattr(host, slot_name(slot, family), _slot_method(slot, family))


def _slot_method(slot: int, family: int) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._term.value % FAMILIES != family:
            self._term.check(self._term.value - 1)
        return self.invoke(self._slots[slot], *args, **kwargs)

    return run


def methods_of(cls: type) -> dict[str, MethodInfo]:
    """Every public method of a workload's class, inherited ones included; decorated ones get the first slots."""
    found = _public_methods(cls)
    is_plain = {name: info.options == InvocationOptions() for name, info in found.items()}
    by_need = sorted((name for name in found if not found[name].is_coroutine), key=lambda name: (is_plain[name], name))
    for slot, name in enumerate(by_need[:SLOTS]):
        found[name] = replace(found[name], slot=slot)
    return found


def has_state(names: Container[str]) -> bool:
    """Whether a class with these attributes has state that a commit holds."""
    return any(all(name in names for name in pair) for pair in STATE_METHODS)


def _public_methods(cls: type) -> dict[str, MethodInfo]:
    found = {}
    reading: Container[str] = getattr(cls, "reading_methods", ())  # of a class that is no workload, none
    for name in dir(cls):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(cls, name)
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if callable(function):
            options = getattr(function, _ATTRIBUTE, None) or InvocationOptions()
            found[name] = MethodInfo(
                options=replace(options, changes_state=False) if name in reading else options,
                is_coroutine=inspect.iscoroutinefunction(function),
            )
    return found


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
    return len(value) if cutting_method(value) else None


def _has_slices(value: Any) -> bool:
    return isinstance(value, list | tuple) or _is_array(value)


def _is_array(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return isinstance(shape, Sequence) and len(shape) > 0 and hasattr(value, "__getitem__")


def cutting_method(value: Any) -> str | None:
    names = ("chunk", "split") if hasattr(value, "__len__") else ()
    return next((name for name in names if callable(getattr(value, name, None))), None)


def _cut(value: Any, parts: int) -> list[Any]:
    if _has_slices(value):  # before Mapping: a batch of tensors may be both
        return [value[piece] for piece in split_range(len(value), parts)]
    if isinstance(value, Mapping):
        cuts = {key: _cut(item, parts) for key, item in value.items()}
        return [{key: pieces[rank] for key, pieces in cuts.items()} for rank in range(parts)]
    method = cutting_method(value) or ""
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
