"""Replacements, for adapters, of what a framework's own trainer uses of Ray: actor handles, `ray.get`, `ray.wait`.

A framework's trainer calls `handle.method.remote(...)` and gives what that returns to `ray.get` and `ray.wait`. Here a
handle is one workload of a role, its calls are role calls, and `get` and `wait` accept those: a call whose process
died is repeated on the process that replaced it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future
from types import ModuleType
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.trainer.role_call import RoleCall
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.trainer.workload_directory import WorkloadHandle
from dlrl_core.workload.actors import LOST


class RemoteStub:
    """A stub for an actor class or an actor's method, whose `.remote()` calls a replacement."""

    def __init__(self, remote: Callable[..., Any]) -> None:
        self.remote = remote

    def options(self, **_: Any) -> RemoteStub:
        return self


class Member:
    """One workload of a role, called as an actor handle. Pickled, it becomes the plain WorkloadHandle."""

    def __init__(self, group: RoleGroup, position: int) -> None:
        self._group = group[position]

    @property
    def handle(self) -> WorkloadHandle:
        return next(iter(self._group))

    def __getattr__(self, method: str) -> RemoteStub:
        if method.startswith("_"):
            raise AttributeError(method)
        return RemoteStub(getattr(self._group, method).options(blocking=False, auto_shard=False))

    def __reduce__(self) -> Any:
        return self.handle.__reduce__()


class PatchedRay:
    """The module `ray` for a framework's trainer, with a `get` and `wait` that accept role calls and futures, too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ray, name)

    def get(self, refs: Any, *, timeout: float | None = None) -> Any:
        if isinstance(refs, RoleCall):
            return refs.get()[0]
        if isinstance(refs, Future):
            return refs.result()
        if not isinstance(refs, list):
            return ray.get(refs, timeout=timeout)
        if refs and all(isinstance(ref, Future) for ref in refs):
            first_failure(refs)
        with contextlib.suppress(RayTaskError, *LOST):  # all at once; failed calls are then handled one by one
            if refs and all(isinstance(ref, RoleCall) for ref in refs):
                values = ray.get([ref.refs[0] for ref in refs])
                refs[0].check()
                for ref in refs:
                    ref.set_heard()
                return values
        return [self.get(ref) for ref in refs]

    def wait(self, refs: Sequence[Any], *, num_returns: int = 1, timeout: float | None = None) -> tuple[Any, Any]:
        """As `ray.wait`. Calls that were lost with a process are started again and returned as not ready."""
        by_ref = {call.refs[0] if isinstance(call, RoleCall) else call: call for call in refs}
        ready, pending = ray.wait(list(by_ref), num_returns=num_returns, timeout=timeout)
        done = [by_ref[ref] for ref in ready]
        for call in by_ref.values():
            if isinstance(call, RoleCall):
                call.check()
                break
        lost = [call for call in done if isinstance(call, RoleCall) and call.recover()]
        return [call for call in done if call not in lost], [by_ref[ref] for ref in pending] + lost


def done(value: Any) -> Future[Any]:
    """A future that has this value already."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def first_failure(futures: list[Future[Any]]) -> None:
    """Wait for all of them; raises as soon as one has failed."""
    done, _ = concurrent.futures.wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()


@contextlib.contextmanager
def replaced(module: ModuleType, **names: Any) -> Iterator[None]:
    """Replace these names of a module, and restore them at the end."""
    before = {name: getattr(module, name) for name in names}
    vars(module).update(names)
    try:
        yield
    finally:
        vars(module).update(before)


def keep_one_wandb_run(run_id: str) -> None:
    """Let every process of the trainer continue one W&B run, unless the user has set another."""
    os.environ.setdefault("WANDB_RUN_ID", run_id)
    os.environ.setdefault("WANDB_RESUME", "allow")
