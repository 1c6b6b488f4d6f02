"""The `async def` methods of a workload, which run side by side on one event loop of its process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from dlrl_core.errors import DlrlError

_LOOK_S = 0.02


@dataclass(eq=False, slots=True)
class CoroutineCall:
    """One call, from its arrival to its end."""

    method: str
    since: float = field(default_factory=time.monotonic)
    task: asyncio.Task[Any] | None = None
    is_cancelled: bool = False


class Coroutines:
    """The calls that have not ended, and the event loop they run on, which is started by the first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._calls: dict[CoroutineCall, None] = {}

    def begin(self, method: str) -> CoroutineCall:
        """Register a call that has arrived, before its arguments are fetched. `end` must be called for it."""
        self._calls[call := CoroutineCall(method)] = None
        return call

    def end(self, call: CoroutineCall) -> None:
        del self._calls[call]

    def run(self, coroutine: Coroutine[Any, Any, Any], call: CoroutineCall | None = None) -> Any:
        """Run a coroutine on the event loop and wait for its result in the caller's thread."""
        tracked = coroutine if call is None else _tracked(call, coroutine)
        return asyncio.run_coroutine_threadsafe(tracked, self._event_loop()).result()

    def oldest(self) -> tuple[str, float] | None:
        """The oldest call: its method, and when it arrived, by the monotonic clock."""
        call = next(iter(list(self._calls)), None)
        return (call.method, call.since) if call else None

    def cancel_all(self, timeout_s: float) -> bool:
        """Cancel all calls, and wait until those that ran have ended; False if none had begun."""
        has_run = False
        while self._calls:
            coroutine = self._cancel(list(self._calls), timeout_s)
            if not asyncio.run_coroutine_threadsafe(coroutine, self._event_loop()).result():
                break
            has_run = True
            time.sleep(_LOOK_S)  # calls that waited for a free thread begin now
        return has_run

    async def _cancel(self, calls: list[CoroutineCall], timeout_s: float) -> bool:
        for call in calls:
            call.is_cancelled = True
        running = {call.task: call for call in calls if call.task is not None and not call.task.done()}
        if not running:
            return False
        for task in running:
            task.cancel()
        _, left = await asyncio.wait(running, timeout=timeout_s)
        for task in left:
            raise DlrlError(
                f"'{running[task].method}' has not ended {timeout_s:g} s after it was cancelled; "
                "let CancelledError through in async methods"
            )
        return True

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="dlrl-coroutines", daemon=True).start()
            return self._loop


async def _tracked(call: CoroutineCall, coroutine: Coroutine[Any, Any, Any]) -> Any:
    if call.is_cancelled:
        coroutine.close()
        raise asyncio.CancelledError
    call.task = asyncio.current_task()
    return await coroutine
