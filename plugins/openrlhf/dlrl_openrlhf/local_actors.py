"""Actors of OpenRLHF's asynchronous trainer as threads of the trainer's process.

OpenRLHF runs the generating and the training half, their queues and their lock as Ray actors of their own: five
more processes that could die. As threads they live and die with the trainer, which dlrl restarts.
"""

from __future__ import annotations

import functools
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dlrl_adapter_kit.framework_seam import RemoteStub, done

_LOOK_S = 0.5


class Closed(BaseException):
    """The trainer goes back to its last commit: whoever still waits here ends."""


class Stage:
    """The threads of one run of `fit`. Closing it ends those that wait."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="openrlhf")

    def submit(self, function: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._pool.submit(function, *args, **kwargs)

    def check(self) -> None:
        if self.closed.is_set():
            raise Closed

    def close(self) -> None:
        """End the threads; a call to workloads that one of them waits for ends first."""
        self.closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


class LocalActor:
    """`actor.method.remote(...)` runs the method in a thread, and returns a future."""

    def __init__(self, instance: Any, stage: Stage) -> None:
        self.instance = instance
        self._stage = stage

    def __getattr__(self, method: str) -> RemoteStub:
        return RemoteStub(functools.partial(self._stage.submit, getattr(self.instance, method)))


class LocalQueue:
    """A queue between the threads of a stage, with the part of ray.util.queue.Queue that OpenRLHF uses."""

    def __init__(self, stage: Stage, maxsize: int = 0) -> None:
        self._stage = stage
        self._queue: queue.Queue[Any] = queue.Queue(maxsize)

    def put(self, item: Any, block: bool = True) -> None:
        while True:
            self._stage.check()
            try:
                return self._queue.put(item, block=block, timeout=_LOOK_S)
            except queue.Full:
                if not block:
                    raise

    def get(self, block: bool = True) -> Any:
        while True:
            self._stage.check()
            try:
                return self._queue.get(block=block, timeout=_LOOK_S)
            except queue.Empty:
                if not block:
                    raise


class LocalLock:
    """The lock between generating and broadcasting; taken in one thread and given back in the same."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._lock = threading.Lock()
        self.acquire = RemoteStub(self._acquire)
        self.release = RemoteStub(self._release)

    def _acquire(self) -> Future[Any]:
        while not self._lock.acquire(timeout=_LOOK_S):
            self._stage.check()
        return done(None)

    def _release(self) -> Future[Any]:
        self._lock.release()
        return done(None)
