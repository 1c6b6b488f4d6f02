"""The job's Master as other processes hold it: found when it is first used, asked again while it restarts."""

from __future__ import annotations

import functools
import time
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError

from dlrl_core.errors import DlrlError

_ASK_AGAIN_S = 0.1


class MasterHandle:
    """`handle.method.remote(...)`, as on a Ray actor handle. `ray_actor` is the Ray handle itself.

    Unpickling a Ray handle loads the actor's class. Every process of a job would wait for that before its own class is
    constructed, and few of them ever call the Master; so the handle is looked up at the first call.
    """

    def __init__(self, *, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name

    @functools.cached_property
    def ray_actor(self) -> Any:
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


def ask_restarting(actor: Any, method: str, *args: Any, patience_s: float, answer_s: float) -> Any:
    """The answer of an actor that Ray may be restarting; it is asked again for `patience_s`.

    Raises a DlrlError that the method raised, as itself; GetTimeoutError if the actor is there but did not answer, each
    time waited for `answer_s`; RayActorError if it is gone for good, or did not come back.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ray.get(getattr(actor, method).remote(*args), timeout=answer_s)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except (GetTimeoutError, RayActorError) as error:
            if isinstance(error, ActorDiedError) or time.monotonic() >= deadline:
                raise
            time.sleep(_ASK_AGAIN_S)
