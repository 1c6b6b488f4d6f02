"""What Ray tells about the cluster: its nodes, and the actors and placement groups of our jobs."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext  # type: ignore[attr-defined]
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dlrl_core.plan import ClusterView, NodeView
from dlrl_core.roles import job_of_namespace, job_of_reservation

_RAYLET_S = 1.5
_IDLE_S = 2.0


class JobCluster(Protocol):
    """A cluster that is started for jobs of this process, and stopped after the last of them. A plugin adds others."""

    @property
    def is_up(self) -> bool: ...

    @property
    def kept_logs(self) -> Path | None:
        """Where its logs will be after its end; None if they are not kept."""

    def acquire(self, shape: ClusterView) -> str:
        """Start these nodes for one more job; returns the address to join. Raises ClusterError."""

    def release(self) -> bool:
        """Count one job less; True if it was the last."""

    def stop_if_unused(self) -> None: ...


def job_cluster() -> JobCluster:
    """The cluster that DLRL_CLUSTER names, 'local' unless set. Raises PluginError if no plugin registers it."""
    from dlrl_core.plugin import plugin_host

    cluster: JobCluster = plugin_host().cluster_starter(os.environ.get("DLRL_CLUSTER") or "local")()
    return cluster


def view_cluster() -> ClusterView:
    """All living nodes with their free resources, ordered by id."""
    free = ray._private.state.available_resources_per_node()
    return _view(lambda node: free.get(node["NodeID"], {}))


def view_capacity() -> ClusterView:
    """All living nodes with all their resources, as if nothing was in use."""
    return _view(lambda node: node["Resources"])


def _view(resources_of: Callable[[Mapping[str, Any]], Mapping[str, float]]) -> ClusterView:
    nodes = [
        NodeView(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            free=dict(resources_of(node)),
            labels=dict(node.get("Labels") or {}),
        )
        for node in ray.nodes()
        if node["Alive"] and resources_of(node)
    ]
    return ClusterView(nodes=tuple(sorted(nodes, key=lambda node: node.node_id)))


def living_actors() -> dict[str, list[str]]:
    """Names of the living named actors of each job."""
    found: dict[str, list[str]] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        job = job_of_namespace(actor["namespace"])
        if job is not None:
            found.setdefault(job, []).append(actor["name"])
    return {job: sorted(names) for job, names in sorted(found.items())}


def standing_reservations() -> dict[str, str]:
    """State of the placement group of each job that has one."""
    found = {}
    for group in placement_group_table().values():
        job = job_of_reservation(group["name"])
        if job is not None and group["state"] != "REMOVED":
            found[job] = group["state"]
    return found


def state_of(actor: Any) -> str:
    """Ray's state of an actor: DEPENDENCIES_UNREADY, PENDING_CREATION, ALIVE, RESTARTING or DEAD."""
    found = ray._private.state.actors(actor_id=actor._actor_id.hex())
    return str(found["State"]) if found else "unknown"


def restarts_of_this_actor() -> int:
    """How often Ray has restarted the actor that this process is."""
    found = ray._private.state.actors(actor_id=ray.get_runtime_context().get_actor_id())
    return int(found["NumRestarts"]) if found else 0


def is_known_to_have_ended(actor_id: str) -> bool:
    """Whether the process of a dead actor has ended for certain: its raylet saw that, or is itself gone.

    A node is also given up when its raylet was stopped or cut off. Then its processes live on.
    """
    found = ray._private.state.actors(actor_id=actor_id)
    kind = found["DeathCause"].WhichOneof("context") if found else None
    if kind != "actor_died_error_context":
        return kind is not None
    reason = found["DeathCause"].actor_died_error_context.reason
    node = next((one for one in ray.nodes() if one["NodeID"] == found["Address"]["NodeID"]), None)
    if node is None or reason != ActorDiedErrorContext.NODE_DIED:
        return bool(reason == ActorDiedErrorContext.WORKER_DIED)
    error = no_answer(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", _RAYLET_S)
    is_closed = isinstance(error, ConnectionRefusedError)  # a stopped process still has its port
    time.sleep(_RAYLET_S if is_closed else 0)  # processes of a job end within a second after their raylet
    return is_closed


async def why_frozen(node_id: str, pids: Sequence[int]) -> dict[int, str]:
    """Which processes of that node are frozen, and why; none if the node does not tell in time."""
    pinned = NodeAffinitySchedulingStrategy(node_id, soft=False)
    look = ray.remote(num_cpus=0, max_retries=0)(_frozen_states).options(scheduling_strategy=pinned)
    try:
        return await asyncio.wait_for(look.remote(pids), 5 * _IDLE_S)
    except (TimeoutError, ray.exceptions.RayError):
        return {}


def _frozen_states(pids: Sequence[int]) -> dict[int, str]:
    """Run on the node of the processes. A thread that waits for Python's lock runs at times, as do those of Ray."""
    before = {pid: _run_state(pid) for pid in pids}
    time.sleep(0 if all(state and state[0] for state in before.values()) else _IDLE_S)
    after = {pid: _run_state(pid) for pid in pids}
    idle = {pid: f"its process did not run for {_IDLE_S:g} s" for pid in pids if before[pid] == after[pid]}
    stopped = {pid: "its process is stopped (SIGSTOP)" for pid, state in after.items() if state and state[0]}
    return {pid: why for pid, why in (idle | stopped).items() if after[pid]}


def _run_state(pid: int) -> tuple[bool, int] | None:
    """Whether it is stopped, and the nanoseconds that its threads ran; None if it is gone, or they are not known."""
    import psutil

    try:
        ran_ns = sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat"))
        is_stopped = psutil.Process(pid).status() == psutil.STATUS_STOPPED
        return (is_stopped, ran_ns) if is_stopped or ran_ns else None
    except (OSError, psutil.Error):  # it, or one of its threads, has ended meanwhile
        return None


def session_logs() -> Path | None:
    """Where Ray's processes write their logs on this node, and likewise on all others; None for a remote client."""
    node = ray._private.worker.global_worker.node
    return None if node is None else Path(node.get_logs_dir_path())


def no_answer(address: str, timeout_s: float) -> Exception | None:
    """Why nothing accepts a TCP connection at 'host:port'; None if something does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except (OSError, ValueError, OverflowError) as error:
        return error
    return None


class Patience:
    """A limit on standing still: `is_lost` once `look` has returned the same value for `still_s`, or after `most_s`."""

    def __init__(self, look: Callable[[], Hashable], *, still_s: float, most_s: float) -> None:
        self._look = look
        self._still_s = still_s
        self._most_s = most_s
        self._began = self._moved = time.monotonic()
        self._last: Hashable = None

    def is_lost(self) -> bool:
        """Look once more, and tell whether to give up."""
        now, seen = time.monotonic(), self._look()
        if seen != self._last:
            self._last, self._moved = seen, now
        return now - self._moved >= self._still_s or now - self._began >= self._most_s

    def __str__(self) -> str:
        """How long was waited, and which limit that reached."""
        now = time.monotonic()
        waited, still = now - self._began, now - self._moved
        if still >= self._still_s:
            return f"{waited:.0f} s, and nothing moved for the last {still:.0f} s (limit {self._still_s:g} s)"
        return f"{waited:.0f} s (limit {self._most_s:g} s)"


def sizes_of(folder: Path, pattern: str) -> Hashable:
    """The files below a folder that match, with their sizes: a value that changes when one of them grows."""
    found = []
    for path in folder.glob(pattern):
        try:
            found.append((path.name, path.stat().st_size))
        except OSError:  # it was removed meanwhile
            continue
    return tuple(sorted(found))
