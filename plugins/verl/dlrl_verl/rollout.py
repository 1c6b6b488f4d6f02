"""verl's own vLLM server as a workload."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from dlrl_core import BaseWorkload
from dlrl_vllm.engine_process import end_with_engine, own_engine


class RolloutWorkload(BaseWorkload):
    """One server of a rollout replica. Where a replica has several devices of a node, its first workload runs it."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self._has_weights = asyncio.Event()
        self._server: Any = None

    async def build(self, **server: Any) -> None:
        """Make the server, with what verl has for it."""
        own_engine("dlrl_verl.weight_receiver")
        if len(server["workers"]) == 1:  # those of this process, wherever it is: one in its place may be elsewhere
            server["cuda_visible_devices"] = ",".join(self.device_ids)
        self._server = vLLMHttpServer(**server)
        os.environ["VERL_RAY_JOB_ID"] = self._identity.run_id  # in the path where weights are handed over

    async def launch_server(self, **told: Any) -> None:
        await self._server.launch_server(**told)
        end_with_engine()

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Waits for the policy's weights first: who asks may find a new process before it has them."""
        await self._has_weights.wait()
        return await self._server.generate(*args, **kwargs)

    async def set_global_steps(self, global_steps: int) -> None:
        """verl's last word when the server has got new weights."""
        await self._server.set_global_steps(global_steps)
        self._has_weights.set()


class RewardModelWorkload(RolloutWorkload):
    """One server of the reward model, which has its own weights. It is asked over HTTP."""

    def place(self) -> tuple[str, tuple[str, ...]]:
        """The node it is on, and its devices there."""
        return ray.get_runtime_context().get_node_id(), self.device_ids


def _delegate(name: str) -> Callable[..., Any]:
    async def call(self: RolloutWorkload, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._server, name)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    call.__name__ = call.__qualname__ = name
    return call


for _name, _method in inspect.getmembers(vLLMHttpServer, inspect.isfunction):
    if not _name.startswith("_") and not hasattr(RolloutWorkload, _name):
        setattr(RolloutWorkload, _name, _delegate(_name))
