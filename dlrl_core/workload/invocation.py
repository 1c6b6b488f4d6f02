"""`@trainer_invocation`: how a trainer's call reaches the workloads of a role."""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlrl_core.errors import SpecError

_ATTRIBUTE = "__dlrl_invocation__"
_Method = TypeVar("_Method", bound=Callable[..., Any])


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
    """Whether a call that a death interrupted may be made again; else more of the job restarts."""

    @classmethod
    def checked(cls, **given: Any) -> InvocationOptions:
        """From what a user wrote; all problems at once."""
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
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
            problems.append(f"trainer_invocation has no attribute '{name}'{hint}")
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
    """Say how the trainer's call of this method goes.

    - `blocking`: wait for the results; False returns a handle at once.
    - `is_async`, `timeout`: wait at most `timeout` seconds for all targets, then raise CallTimeoutError.
    - `target`: 'ALL' workloads of the role, or 'RANK0' only.
    - `auto_shard`: split batches over the targets in rank order.
    - `pre_func`: gets the arguments in the trainer's process and returns the ones to send.
    - `post_func`: gets the list of results in rank order; what it returns is the call's result.
    - `replay`: a call that was interrupted by the death of its workload may be made again on the restarted one.
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
    """What the trainer must know of a method without importing its class."""

    options: InvocationOptions
    is_coroutine: bool = False
    slot: int | None = None
    """Number of the host's own method that runs this one without being told its name: an argument saved."""


SLOTS = 32
"""How many methods of a class have a slot; the rest is called by name."""


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
