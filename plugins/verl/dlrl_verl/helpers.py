"""The processes that verl starts beside its workers: agent loops, the router of requests to rollout servers, and those
who ask a reward model.

They turn prompts into requests, and keep nothing that would be missed: Ray restarts them, and their work is done again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ray

from dlrl_core.context import looks_secret
from dlrl_core.workload.process import given_env

_EXTERNAL = "VERL_USE_EXTERNAL_MODULES"
"""What verl imports first in any process; see dlrl_verl.cpu."""


class RestartingRay:
    """Ray, as verl uses it to start them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def remote(self, actor_class: type) -> Any:
        """An actor class with the job's environment. Ray shows what it is told, so secrets go another way."""
        secrets = {name: value for name, value in given_env.items() if looks_secret(name)}
        shown = {name: value for name, value in given_env.items() if name not in secrets}
        env = {"env_vars": {**shown, _EXTERNAL: os.environ.get(_EXTERNAL, "")}}
        told = _told(actor_class, secrets) if secrets else actor_class
        return ray.remote(max_restarts=-1, max_task_retries=-1, runtime_env=env)(told)


def _told(actor_class: Any, secrets: dict[str, str]) -> type:
    class Told(actor_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            os.environ.update(secrets)
            super().__init__(*args, **kwargs)

    return Told


@contextlib.contextmanager
def carried(module: ModuleType) -> Iterator[None]:
    """Actors of its classes get their code from here. To import it, they would import all that verl has beside it."""
    ray.cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(module)


class NamelessRay(RestartingRay):
    """The same for those that verl gives a fixed name, which two jobs of one cluster can't both have."""

    def remote(self, actor_class: type) -> _Nameless:
        return _Nameless(super().remote(actor_class))


class _Nameless:
    def __init__(self, actor_class: Any) -> None:
        self._class = actor_class

    def options(self, *, name: str, **rest: Any) -> Any:
        return self._class.options(**rest)
