"""verl's reward model: its servers are the reward role, and its router finds those that were replaced."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
import uvicorn
from verl.experimental.reward_loop import reward_loop, reward_model
from verl.experimental.reward_loop.router import naive_router

from dlrl_core.errors import ClusterError
from dlrl_core.trainer.framework_seam import replaced
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_verl.helpers import NamelessRay
from dlrl_verl.servers import replica_class

_START_S = 60.0


class RewardModel:
    """The servers of the role, and the address under which all of them are asked."""

    def __init__(self, job: str, servers: RoleGroup) -> None:
        self._job = job
        self._servers = servers
        self._router: Router | None = None

    @contextmanager
    def in_the_role(self) -> Iterator[None]:
        """verl's reward loop, when it is made, gets its servers and its router from here."""
        with (
            replaced(
                reward_model,
                get_rollout_replica_class=self._replica_class,
                split_resource_pool=_split,
            ),
            replaced(naive_router, launch_router_process=self._launch_router),
            replaced(reward_loop, ray=NamelessRay()),
        ):
            yield

    def meet_servers(self, manager: Any, *, is_asked: bool) -> None:
        """Ask at the addresses that the servers have now. A new one sleeps if verl let the first one sleep."""
        assert self._router is not None
        if is_asked and manager.config.rollout.free_cache_engine:
            manager.wake_up()
        self._router.ask(asyncio.run(_urls(manager.rollout_replicas)))

    def _replica_class(self, rollout: str) -> type:
        if rollout != "vllm":
            raise ValueError(f"dlrl runs verl's reward model on 'vllm', not on '{rollout}'")
        return replica_class(self._job, self._servers, self._servers.place())

    def _launch_router(self, worker_urls: list[str]) -> tuple[str, None]:
        self._router = Router(worker_urls)
        return self._router.address, None


class Router(naive_router.NaiveRouter):  # type: ignore[misc]
    """verl's own, in a thread: it ends with this process, and can be told of other servers."""

    def __init__(self, worker_urls: list[str]) -> None:
        super().__init__(worker_urls=worker_urls)
        listening = socket.create_server((ray.util.get_node_ip_address().strip("[]"), 0))
        host, port = listening.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server = uvicorn.Server(uvicorn.Config(self.app, log_level="warning"))
        threading.Thread(target=server.run, args=([listening],), name="dlrl-reward-router", daemon=True).start()
        deadline = time.monotonic() + _START_S
        while not server.started:
            if time.monotonic() > deadline:
                raise ClusterError(f"the router of the reward model did not start within {_START_S:g} s")
            time.sleep(0.05)

    def ask(self, worker_urls: list[str]) -> None:
        """These are the servers from now on."""
        self.request_counts: dict[str, int] = {url: self.request_counts.get(url, 0) for url in worker_urls}
        self.worker_urls = worker_urls

    def _release_worker(self, url: str) -> None:
        if url in self.request_counts:
            super()._release_worker(url)


async def _urls(replicas: Sequence[Any]) -> list[str]:
    places = await asyncio.gather(*(one.servers[0].get_server_address.remote() for one in replicas))
    return [f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host, port in places]


def _split(pool: Any, split_size: int) -> list[Any]:
    """Stands for what cuts a pool of devices into those of each replica: they are placed."""
    return [pool.name] * (pool.world_size // split_size)
