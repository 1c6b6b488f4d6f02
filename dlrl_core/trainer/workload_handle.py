"""A workload as the trainer's code sees it: called like a Ray actor handle."""

from __future__ import annotations

from typing import Any


class WorkloadHandle:
    """`handle.method.remote(...)` and `handle.method.options(...).remote(...)`, as on a Ray actor handle.

    Any public method of the user's class can be called. The handle can be passed to other workloads.
    `ray_actor` is the Ray handle of the process itself.
    """

    def __init__(self, *, name: str, role: str, rank: int, ray_actor: Any, part: str | None = None) -> None:
        self.name = name
        self.part = part
        self.role = role
        self.rank = rank
        self.ray_actor = ray_actor

    def __getattr__(self, method: str) -> HandleMethod:
        if method.startswith("_"):
            raise AttributeError(f"'{method}' is private; the public methods of '{self.name}' can be called")
        return HandleMethod(self.ray_actor.invoke, method)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.name, self.role, self.rank, self.ray_actor, self.part)

    def __repr__(self) -> str:
        return f"WorkloadHandle('{self.name}')"


def _rebuild(name: str, role: str, rank: int, ray_actor: Any, part: str | None) -> WorkloadHandle:
    return WorkloadHandle(name=name, role=role, rank=rank, ray_actor=ray_actor, part=part)


class HandleMethod:
    """One method of a WorkloadHandle."""

    def __init__(self, invoke: Any, method: str) -> None:
        self._invoke = invoke
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Start the call; returns its Ray object reference."""
        return self._invoke.remote(self._method, *args, **kwargs)

    def options(self, **options: Any) -> HandleMethod:
        """The same method with Ray's options for actor calls, such as `num_returns`."""
        return HandleMethod(self._invoke.options(**options), self._method)
