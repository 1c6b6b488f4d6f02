"""verl's reward model: its servers are the reward role, and its router finds those that were replaced."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
import ray
import uvicorn
from fastapi import Request
from verl.experimental.reward_loop import reward_loop, reward_model
from verl.experimental.reward_loop.router import naive_router

from dlrl_adapter_kit.framework_seam import replaced
from dlrl_core.errors import ClusterError
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_verl.helpers import NamelessRay
from dlrl_verl.servers import replica_class
from dlrl_verl.steady_handle import BACK_S

_START_S = 60.0
_AGAIN_S = 0.5


class RewardModel:
    """The servers of the role, and the address under which all of them are asked."""

    def __init__(self, job: str, servers: RoleGroup) -> None:
        self._job = job
        self._servers = servers
        self._router: Router | None = None
        self.manager: Any = None
        """verl's own, once it is made."""

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

    def meet_servers(self, woken: Sequence[int] = ()) -> None:
        """Ask at the addresses that the servers have now. Those of these ranks are new, and asked at once.

        A new server sleeps if verl let the first one sleep.
        """
        assert self._router is not None
        for replica in self.manager.rollout_replicas:
            for server in replica.servers:
                if server.handle.rank in woken and self.manager.config.rollout.free_cache_engine:
                    server.call_here("wake_up")
        self._router.ask([_url(one.servers[0]) for one in self.manager.rollout_replicas])

    def rest(self) -> None:
        """Nobody is asked before verl wakes them up again."""
        if self.manager.config.rollout.free_cache_engine:
            self.manager.sleep()

    def _replica_class(self, rollout: str) -> type:
        if rollout != "vllm":
            raise ValueError(f"dlrl runs verl's reward model on 'vllm', not on '{rollout}'")
        return replica_class(self._job, self._servers, self._servers.place())

    def _launch_router(self, worker_urls: list[str]) -> tuple[str, None]:
        self._router = Router(worker_urls, ray.util.get_node_ip_address().strip("[]"))
        return self._router.address, None


class Router(naive_router.NaiveRouter):  # type: ignore[misc]
    """verl's own, in a thread: it ends with this process, and can be told of other servers.

    A request whose server is gone is made again on another one, or on the one that takes its place.
    """

    def __init__(self, worker_urls: list[str], host: str) -> None:
        super().__init__(worker_urls=worker_urls)
        self._dropped = {url: asyncio.Event() for url in worker_urls}
        self._loop: asyncio.AbstractEventLoop | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, 0), family=family)
        self.address = _address(host, listening.getsockname()[1])
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_level="warning"))
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="dlrl-reward-router", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if time.monotonic() > deadline:
                raise ClusterError(f"the router of the reward model did not start within {_START_S:g} s")
            time.sleep(0.05)

    def ask(self, worker_urls: Sequence[str]) -> None:
        """These are the servers from now on."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._change, list(worker_urls))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _change(self, worker_urls: list[str]) -> None:
        for url in self._dropped.keys() - set(worker_urls):
            self._dropped.pop(url).set()
        self.request_counts: dict[str, int] = {url: self.request_counts.get(url, 0) for url in worker_urls}
        self._dropped = {url: self._dropped.get(url) or asyncio.Event() for url in worker_urls}
        self.worker_urls = worker_urls

    async def _on_startup(self) -> None:
        self._loop = asyncio.get_running_loop()
        await super()._on_startup()

    async def _make_async_request(self, request: Request, endpoint: str) -> Any:
        body, headers = await request.body(), dict(request.headers)
        deadline = time.monotonic() + BACK_S
        while True:
            url = self._select_worker(body if self.full_determinism else None)
            asking = asyncio.ensure_future(self._asked(f"{url}/{endpoint}", request.method, body, headers))
            dropped = asyncio.ensure_future(self._dropped[url].wait())
            try:
                await asyncio.wait({asking, dropped}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
            except aiohttp.ClientConnectionError:
                if time.monotonic() > deadline:
                    raise
            finally:
                asking.cancel()
                dropped.cancel()
                self._release_worker(url)
            await asyncio.sleep(_AGAIN_S)

    async def _asked(self, url: str, method: str, body: bytes, headers: dict[str, str]) -> Any:
        async with self.client.request(method, url, data=body, headers=headers) as response:
            response.raise_for_status()
            return await naive_router._read_async_response(response)

    def _release_worker(self, url: str) -> None:
        if url in self.request_counts:
            super()._release_worker(url)


def _url(server: Any) -> str:
    return f"http://{_address(*server.call_here('get_server_address'))}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(pool: Any, split_size: int) -> list[Any]:
    """Stands for what cuts a pool of devices into those of each replica: they are placed."""
    return [pool.name] * (pool.world_size // split_size)
