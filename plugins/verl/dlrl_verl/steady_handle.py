"""Handles by which verl's agent loops reach workloads.

They go to processes that import neither vLLM nor much of verl; so this module imports neither.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dlrl_core.errors import ClusterError
from dlrl_core.scheduler.workload_launcher import find_actor
from dlrl_core.workload.actors import GONE

_AGAIN_S = 0.5
BACK_S = 1800.0
"""A replacement takes as long as its engine starts, on a node that may have to be found."""


class SteadyHandle:
    """A workload by its name: whoever is behind it when it is called. For processes that dlrl does not run.

    A call whose process dies is made again on the one that takes its place.
    """

    def __init__(self, name: str, job: str) -> None:
        self._name = name
        self._job = job
        self._actor: Any = None

    def __getattr__(self, method: str) -> _SteadyMethod:
        if method.startswith("_"):
            raise AttributeError(method)
        return _SteadyMethod(self, method)

    def __reduce__(self) -> Any:
        return SteadyHandle, (self._name, self._job)

    async def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        while True:
            actor = self._actor or await self._found()
            try:
                return await actor.invoke_coroutine.remote(method, *args, **kwargs)
            except GONE:
                self._actor = None
                await asyncio.sleep(_AGAIN_S)

    async def _found(self) -> Any:
        """The process of that name; one that is being replaced is waited for."""
        deadline = time.monotonic() + BACK_S
        while True:
            self._actor = find_actor(self._job, self._name)
            if self._actor is not None:
                return self._actor
            if time.monotonic() > deadline:
                raise ClusterError(f"workload '{self._name}' of job '{self._job}' is gone for {BACK_S:g} s")
            await asyncio.sleep(_AGAIN_S)


class _SteadyMethod:
    def __init__(self, handle: SteadyHandle, method: str) -> None:
        self._handle = handle
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._handle.call(self._method, args, kwargs))
