"""verl's rollout replicas over the rollout role, and handles by which verl's agent loops reach workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

from dlrl_core.errors import SpecError
from dlrl_core.trainer.framework_seam import Member, MemberMethod
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_core.workload.death_reason import GONE

_AGAIN_S = 0.5


class AwaitedMember(Member):
    """One workload, whose calls can be awaited: verl's managers are coroutines."""

    def __getattr__(self, method: str) -> Any:
        return _AwaitedMethod(super().__getattr__(method))


class _AwaitedMethod:
    def __init__(self, method: MemberMethod) -> None:
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        call = self._method.remote(*args, **kwargs)  # at once: calls of `init` have an order
        return asyncio.ensure_future(asyncio.to_thread(lambda: call.get()[0]))


class SteadyHandle:
    """A workload by its name: whoever is behind it when it is called. For processes that dlrl does not run.

    A call whose process dies is made again on the one that takes its place.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._namespace = ray.get_runtime_context().namespace
        self._actor: Any = None

    def __getattr__(self, method: str) -> _SteadyMethod:
        if method.startswith("_"):
            raise AttributeError(method)
        return _SteadyMethod(self, method)

    def __reduce__(self) -> Any:
        return _steady, (self._name, self._namespace)

    async def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        while True:
            try:
                if self._actor is None:
                    self._actor = ray.get_actor(self._name, namespace=self._namespace)
                return await self._actor.invoke_coroutine.remote(method, *args, **kwargs)
            except (ValueError, *GONE) as error:
                if isinstance(error, ValueError) and self._actor is not None:
                    raise
                self._actor = None
                await asyncio.sleep(_AGAIN_S)


def _steady(name: str, namespace: str) -> SteadyHandle:
    handle = SteadyHandle.__new__(SteadyHandle)
    handle.__dict__.update(_name=name, _namespace=namespace, _actor=None)
    return handle


class _SteadyMethod:
    def __init__(self, handle: SteadyHandle, method: str) -> None:
        self._handle = handle
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._handle.call(self._method, args, kwargs))


def replica_class(rollouts: RoleGroup, places: Sequence[tuple[str, tuple[str, ...]]]) -> type:
    """verl's replica with servers that are workloads; `places` has the node and devices of each rank of the policy."""

    class RoleReplica(vLLMReplica):  # type: ignore[misc]
        """A replica: one server on each of its nodes."""

        async def launch_servers(self) -> None:
            self.servers = [self._server(node) for node in range(self.nnodes)]
            await asyncio.gather(*(server.build.remote(**self._told(node)) for node, server in enumerate(self.servers)))
            address, port, rpc_port = await self.servers[0].get_master_address.remote()
            met = {"master_address": address, "master_port": port, "dp_rpc_port": rpc_port}
            await asyncio.gather(*(server.launch_server.remote(**met) for server in self.servers))
            host, port = await self.servers[0].get_server_address.remote()
            self._server_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._server_handle = SteadyHandle(self.servers[0].handle.name)

        def _server(self, node: int) -> AwaitedMember:
            seats = len(rollouts) * self.world_size // len(places)
            return AwaitedMember(rollouts, self.replica_rank * seats + node * seats // self.nnodes)

        def _told(self, node: int) -> dict[str, Any]:
            first = self.world_size * self.replica_rank + node * self.gpus_per_replica_node
            mine = places[first : first + self.gpus_per_replica_node]
            if len({node_id for node_id, _ in mine}) != 1:
                raise SpecError([f"the devices of rollout replica {self.replica_rank} are not on one node: {mine}"])
            return {
                "config": self.config,
                "model_config": self.model_config,
                "rollout_mode": self.rollout_mode,
                "workers": list(mine),
                "replica_rank": self.replica_rank,
                "node_rank": node,
                "gpus_per_node": self.gpus_per_replica_node,
                "nnodes": self.nnodes,
                "cuda_visible_devices": ",".join(devices[0] for _, devices in mine),
            }

    return RoleReplica
