"""verl's agent loops, which turn prompts into requests to the rollout servers. They keep nothing: Ray restarts them."""

from __future__ import annotations

from typing import Any

from dlrl_verl import cpu

cpu.prepare()

import ray  # noqa: E402
from verl.experimental.agent_loop import AgentLoopManager  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker  # noqa: E402


class PreparedAgentLoopWorker(AgentLoopWorker):  # type: ignore[misc]
    """verl's worker. Where it is loaded, this module gets its process ready."""


class RestartedAgentLoopManager(AgentLoopManager):  # type: ignore[misc]
    """verl's manager. A worker that dies is started again, and does its prompts again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.agent_loop_workers_class = ray.remote(max_restarts=-1, max_task_retries=-1)(PreparedAgentLoopWorker)
        super().__init__(*args, **kwargs)
