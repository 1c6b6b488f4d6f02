"""verl's agent loops, which turn prompts into requests to the rollout servers. They keep nothing: Ray restarts them."""

from __future__ import annotations

import os
from typing import Any

import ray
from verl.experimental.agent_loop import AgentLoopManager
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

_EXTERNAL = "VERL_USE_EXTERNAL_MODULES"
"""What verl imports first in any process; see dlrl_verl.cpu."""


class RestartedAgentLoopManager(AgentLoopManager):  # type: ignore[misc]
    """verl's manager. A worker that dies is started again, and does its prompts again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        env = {"env_vars": {_EXTERNAL: os.environ.get(_EXTERNAL, "")}}
        restarted = ray.remote(max_restarts=-1, max_task_retries=-1, runtime_env=env)
        self.agent_loop_workers_class = restarted(AgentLoopWorker)
        super().__init__(*args, **kwargs)
