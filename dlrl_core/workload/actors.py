"""How the processes of a job reach an actor that may be restarting, and how Ray reports that one is gone."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnschedulableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

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
        return functools.partial(MasterHandle, namespace=self._namespace, name=self._name), ()

    def __repr__(self) -> str:
        return f"MasterHandle('{self._namespace}')"


class NoAnswerError(Exception):
    """An actor did not answer; `is_alive` if it only took too long."""

    def __init__(self, reason: str, *, is_alive: bool) -> None:
        super().__init__(reason)
        self.is_alive = is_alive


def ask_restarting(method: Any, *args: Any, answer_s: float, back_s: float) -> Any:
    """The answer of an actor's method; an actor that is being restarted is asked again, for at most `back_s`.

    Raises the DlrlError that the method raised, or NoAnswerError: at once if the actor is dead for good, else when
    `back_s` has passed. One try waits for at most `answer_s`.
    """
    deadline = time.monotonic() + back_s
    while True:
        try:
            return ray.get(method.remote(*args), timeout=answer_s)
        except GetTimeoutError as error:
            if time.monotonic() >= deadline:
                raise NoAnswerError(f"no answer for {back_s:g} s", is_alive=True) from error
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except RayActorError as error:
            if isinstance(error, ActorDiedError) or time.monotonic() >= deadline:
                raise NoAnswerError(one_line(error), is_alive=False) from error
            time.sleep(_ASK_AGAIN_S)


def actor_class(host: type, **options: Any) -> Any:
    """The Ray class of a host, exported to the cluster.

    Ray exports a class when its first actor is created, and disassembles all of its methods then, to warn of classes
    that are exported again and again. That takes a tenth of a second, which a start or a restart would wait for, so it
    is left out here. There is no public call for it; where this one fails, Ray exports the class by itself.
    """
    made: Any = ray.remote(**options)(host) if options else ray.remote(host)
    with contextlib.suppress(Exception):
        worker, meta = ray._private.worker.global_worker, made.__ray_metadata__
        manager: Any = worker.function_actor_manager
        manager.compute_collision_identifier = lambda exported: exported.__name__.encode()
        try:
            descriptor, methods = meta.actor_creation_function_descriptor, meta.method_meta.methods.keys()
            manager.export_actor_class(meta.modified_class, descriptor, methods)
            meta.last_export_cluster_and_job = worker.current_cluster_and_job
        finally:
            del manager.compute_collision_identifier
    return made


def one_line(error: Exception) -> str:
    """The message of an error in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]


GONE = (
    RayActorError,
    OutOfMemoryError,
    RuntimeEnvSetupError,
    ActorUnschedulableError,
    NodeDiedError,
    WorkerCrashedError,
)
"""What a call to an actor raises if its process is gone or never started. Ray has no common base class for these."""

LOST = (*GONE, ObjectLostError)
"""What a call raises if its own process died, or one that its arguments were to come from."""

_SEEN = (
    # Text in Ray's message, in the order of search, and the reason that is shown for it
    ("low on memory", "its node ran low on memory and Ray killed it"),
    ("killed by `ray.kill`", "it was killed by ray.kill"),
    ("The node died", "its node died"),
    ("node was terminated", "its node was terminated"),
    ("its node has died", "its node died"),
    ("connection error code 2", "its process ended without a word (SIGKILL, out of memory, or a crash)"),
    ("SYSTEM_ERROR", "its process ended without a word (SIGKILL, out of memory, or a crash)"),
    ("exit()", "its process called exit()"),
    ("INTENDED_USER_EXIT", "its process called exit()"),
)
_LONGEST = 200


def death_reason(error: BaseException) -> str:
    """The reason in an error of Ray, in a few words; the beginning of its message if that is not known."""
    text = " ".join(str(error).split())
    known = next((ours for theirs, ours in _SEEN if theirs in text), None)
    return known or (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
