"""What is changed for user code in the trainer's process, where Ray and Python have no hooks.

`ray.get` and `ray.wait` accept RoleCalls, and a thread belongs to the run of `fit` that has started it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from dlrl_core.trainer.role_call import RoleCall
from dlrl_core.trainer.workload_directory import FIT

_get, _wait, _start, _submit = ray.get, ray.wait, threading.Thread.start, ThreadPoolExecutor.submit


def prepare_trainer_process() -> None:
    """Called before user code is imported."""
    vars(ray).update(get=get, wait=wait)
    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign, assignment]


def get(refs: Any, *, timeout: float | None = None, **options: Any) -> Any:
    waited = [refs] if isinstance(refs, RoleCall) else refs
    if not _has_calls(waited):
        return _get(refs, timeout=timeout, **options)
    if timeout is not None and wait(waited, num_returns=len(waited), timeout=timeout)[1]:
        raise GetTimeoutError(f"{waited} are not all done after {timeout:g} s")
    values = [one.get() if isinstance(one, RoleCall) else _get(one, **options) for one in waited]
    return values[0] if isinstance(refs, RoleCall) else values


def wait(refs: Any, *, num_returns: int = 1, timeout: float | None = None, **options: Any) -> Any:
    """A RoleCall is ready when all its parts are."""
    if not _has_calls(refs):
        return _wait(refs, num_returns=num_returns, timeout=timeout, **options)
    deadline = time.monotonic() + (10**6 if timeout is None else timeout)
    parts = {one: set(one.refs if isinstance(one, RoleCall) else [one]) for one in refs}
    every = list(set().union(*parts.values()))
    while True:
        pending = _wait(every, num_returns=len(every), timeout=0, **options)[1]
        ready = [one for one in refs if parts[one].isdisjoint(pending)][:num_returns]
        left_s = deadline - time.monotonic()
        if len(ready) == num_returns or left_s <= 0:
            return ready, [one for one in refs if one not in ready]
        _wait(pending, timeout=left_s, **options)


def _has_calls(refs: Any) -> bool:
    return isinstance(refs, list) and any(isinstance(one, RoleCall) for one in refs)


def start(thread: threading.Thread) -> None:
    vars(thread).update(run=_bound(thread.run))
    _start(thread)


def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return _submit(pool, _bound(function), *args, **kwargs)


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for another thread, as part of the run of `fit` that this one belongs to."""
    fit = FIT.get()

    def run(*args: Any, **kwargs: Any) -> Any:
        token = FIT.set(fit)
        try:
            return function(*args, **kwargs)
        finally:
            FIT.reset(token)

    return run
