"""The job's Master as its other processes hold it: found when it is first used."""

from __future__ import annotations

import functools
from typing import Any


class MasterHandle:
    """`handle.method.remote(...)`, as on a Ray actor handle. `ray_actor` is the Ray handle itself.

    A Ray handle brings its class along wherever it goes, and every process of a job would wait for that before its
    own class is constructed, though few of them ever call the Master.
    """

    def __init__(self, *, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name

    @functools.cached_property
    def ray_actor(self) -> Any:
        import ray

        return ray.get_actor(self._name, namespace=self._namespace)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(f"'{method}' is private; the public methods of the Master can be called")
        return getattr(self.ray_actor, method)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._namespace, self._name)

    def __repr__(self) -> str:
        return f"MasterHandle('{self._namespace}')"


def _rebuild(namespace: str, name: str) -> MasterHandle:
    return MasterHandle(namespace=namespace, name=name)
