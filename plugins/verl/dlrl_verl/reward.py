"""verl's own worker for rewards as a workload."""

from __future__ import annotations

import asyncio
from typing import Any

from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

from dlrl_core import BaseWorkload


class RewardWorkload(BaseWorkload):
    """One of those who compute rewards, by the user's function or verl's own."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self._built = asyncio.Event()
        self._worker: Any = None

    async def build(self, *args: Any, **kwargs: Any) -> None:
        self._worker = RewardLoopWorker(*args, **kwargs)
        self._built.set()

    async def compute_score(self, data: Any) -> Any:
        await self._built.wait()  # who asks may find a new process before it is ready
        return await self._worker.compute_score(data)

    async def compute_score_batch(self, data: Any) -> Any:
        await self._built.wait()
        return await self._worker.compute_score_batch(data)
