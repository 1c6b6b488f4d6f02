"""The classes of a user: how they are found, and how a trainer's call reaches their methods (`@trainer_invocation`)."""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlrl_core.errors import SpecError
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
    """The seven attributes of the guide, and `replay`. Methods without the decorator are called with these defaults."""

    blocking: bool = True
    is_async: bool = False
    timeout: float = 10
    target: Target = Target.ALL
    auto_shard: bool = True
    pre_func: Callable[..., Any] | None = None
    post_func: Callable[..., Any] | None = None
    replay: bool = True
    """Whether a call that a death interrupted may be repeated; if not, more of the job is restarted."""

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
        elif name in ("blocking", "is_async", "auto_shard", "replay") and not isinstance(value, bool):
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
    """
    options = InvocationOptions.checked(
        blocking=blocking,
        is_async=is_async,
        timeout=timeout,
        target=target,
        auto_shard=auto_shard,
        pre_func=pre_func,
        post_func=post_func,
        replay=replay,
        **unknown,
    )

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


SLOTS = 32
"""How many methods of a class have a slot; the others are called by name."""


def methods_of(cls: type) -> dict[str, MethodInfo]:
    """Every public method of a workload's class, inherited ones included; decorated ones get the first slots."""
    found = _public_methods(cls)
    is_plain = {name: info.options == InvocationOptions() for name, info in found.items()}
    by_need = sorted((name for name in found if not found[name].is_coroutine), key=lambda name: (is_plain[name], name))
    for slot, name in enumerate(by_need[:SLOTS]):
        found[name] = replace(found[name], slot=slot)
    return found


def _public_methods(cls: type) -> dict[str, MethodInfo]:
    found = {}
    for name in dir(cls):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(cls, name)
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if callable(function):
            found[name] = MethodInfo(
                options=getattr(function, _ATTRIBUTE, None) or InvocationOptions(),
                is_coroutine=inspect.iscoroutinefunction(function),
            )
    return found
