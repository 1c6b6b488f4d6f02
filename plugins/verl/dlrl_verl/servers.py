"""verl's replicas over a role of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from verl.workers.rollout.replica import RolloutMode
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

from dlrl_adapter_kit.framework_seam import Member, RemoteStub
from dlrl_core.errors import SpecError
from dlrl_core.trainer.role_call import RoleCall
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_verl.steady_handle import SteadyHandle


class AwaitedMember(Member):
    """One workload, whose calls can be awaited: verl's managers are coroutines."""

    def __getattr__(self, method: str) -> Any:
        return _AwaitedMethod(super().__getattr__(method))

    def call_here(self, method: str) -> Any:
        """For one who must not wait for another thread, such as `on_restart`, in which no other may replace anybody."""
        call: RoleCall = super().__getattr__(method).remote()
        return call.get()[0]


class _AwaitedMethod:
    def __init__(self, method: RemoteStub) -> None:
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        call = self._method.remote(*args, **kwargs)  # at once: calls of `init` have an order
        return asyncio.ensure_future(asyncio.to_thread(lambda: call.get()[0]))


def replica_class(job: str, servers: RoleGroup, places: Sequence[tuple[str, tuple[str, ...]]]) -> type:
    """verl's replica with servers that are workloads; `places` has the node and device of each rank of its pool."""

    class RoleReplica(vLLMReplica):  # type: ignore[misc]
        """A replica: one server on each of its nodes."""

        async def init_colocated(self, resource_pool: Any) -> None:
            """For a reward model, whose servers are placed already."""
            self.rollout_mode = RolloutMode.COLOCATED
            await self.launch_servers()

        async def launch_servers(self) -> None:
            self.servers = [self._server(node) for node in range(self.nnodes)]
            await asyncio.gather(*(server.build.remote(**self._told(node)) for node, server in enumerate(self.servers)))
            address, port, rpc_port = await self.servers[0].get_master_address.remote()
            met = {"master_address": address, "master_port": port, "dp_rpc_port": rpc_port}
            await asyncio.gather(*(server.launch_server.remote(**met) for server in self.servers))
            host, port = await self.servers[0].get_server_address.remote()
            self._server_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self._server_handle = SteadyHandle(self.servers[0].handle.name, job)

        def _server(self, node: int) -> AwaitedMember:
            seats = len(servers) * self.world_size // len(places)
            return AwaitedMember(servers, self.replica_rank * seats + node * seats // self.nnodes)

        def _told(self, node: int) -> dict[str, Any]:
            first = self.world_size * self.replica_rank + node * self.gpus_per_replica_node
            mine = places[first : first + self.gpus_per_replica_node]
            if len({node_id for node_id, _ in mine}) != 1:
                raise SpecError([f"the devices of replica {self.replica_rank} are not on one node: {mine}"])
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
