"""The grounds on which jobs are struck, one for each setting: a cluster, a store, and what of them can be hit.

A ground is entered once and shared by the runs of many seeds, some of them at the same time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray
from redis_server import RedisServer

from dlrl_core import RLJob
from dlrl_core.api.connection import connect
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.roles import MASTER, TRAINER
from dlrl_core.scheduler.workload_launcher import find_actor
from soak import exactness
from soak.fault_plan import PROCESSES, Planned, Setting, Target, chosen
from soak.own_memory import NodesWithOwnMemory
from soak.redis_cluster import RedisCluster
from soak.small_disk import SmallDisk, small_disk
from soak.watched_job import WatchedJob

_MEMORY_MB, _STORE_MB = 160, 128
"""Durable state, some versions of 4 MB for each of two ranks, is on the disk of the store too."""


class NotPossibleError(Exception):
    """This machine can't have the fault."""


class _Turns:
    """Many of one kind at a time, and none of the other."""

    def __init__(self) -> None:
        self._counts = {"faults": 0, "peace": 0}
        self._changed = threading.Condition()

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not any(count for one, count in self._counts.items() if one != kind))
            self._counts[kind] += 1
        try:
            yield
        finally:
            with self._changed:
                self._counts[kind] -= 1
                self._changed.notify_all()


class Ground:
    """Where jobs run and what can be hit; what a setting does not have raises AssertionError."""

    has_gcs = True
    has_servers = False
    """Whether the store is on a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """For files of the jobs."""
        self._locks = {target: threading.Lock() for target in Target}
        self._turns = _Turns()

    def check(self, groups: Sequence[Sequence[Planned]]) -> None:
        """Raise NotPossibleError if this machine can't have one of these faults."""

    @contextmanager
    def alone(self, group: Sequence[Planned]) -> Iterator[None]:
        """What is not of one job alone is hit by one group at a time, and while no job is `in_peace`."""
        shared = {_shared(one.target) for one in group if one.target not in PROCESSES}
        with ExitStack() as held:
            for target in sorted(shared):
                held.enter_context(self._locks[target])
            if shared:
                held.enter_context(self._turns.of("faults"))
            yield

    def in_peace(self) -> AbstractContextManager[None]:
        """Nothing that jobs share is hit: a job starts, which a cluster that never worked would end; or it ends."""
        return self._turns.of("peace")

    def job(self, name: str, *, is_small: bool, **config: Any) -> RLJob:
        return exactness.job(is_small=is_small, silence_s=exactness.SHORT_SILENCE_S, **config)

    def submit(self, job: RLJob, name: str, choice: float) -> WatchedJob:
        """`choice` is where the Master runs, if it may be elsewhere than with this process."""
        watched = WatchedJob(name, job.submit(name, blocking=False))
        watched.has_gcs = lambda: self.has_gcs
        return watched

    def before_group(self) -> None:
        """Make whole again what an earlier group took away."""

    def raylets(self) -> Mapping[str, psutil.Process]:
        """The raylets of living nodes, by the id of the node."""
        sockets = {node["RayletSocketName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
        return {sockets[name]: process for name, process in _raylets().items() if name in sockets}

    def nodes_of(self, job: WatchedJob) -> dict[str, set[str]]:
        """The nodes that can be lost on which something of the job is, and what."""
        raise AssertionError("no node can be lost")

    def kill_node(self, node: str) -> None:
        raise AssertionError("no node can be lost")

    def store_file(self) -> Path:
        """That of the SQLite store."""
        return Path(os.environ["DLRL_HOME"]) / "context.db"

    def disk(self, target: Target) -> SmallDisk:
        raise AssertionError(f"no {target} can be filled")

    def server(self, target: Target) -> RedisServer:
        raise AssertionError(f"the {target} is on no server")

    def cluster(self) -> RedisCluster:
        raise AssertionError("the GCS does not survive")


class TwoNodes(Ground):
    """A cluster of two nodes that is there already; its jobs use small disks for their store and their state."""

    def __init__(self, folder: Path, disks: Mapping[Target, SmallDisk]) -> None:
        super().__init__(folder)
        self._disks = disks

    def check(self, groups: Sequence[Sequence[Planned]]) -> None:
        disks = [self._disks[one.target] for group in groups for one in group if one.target in self._disks]
        if not all(disk.is_mounted for disk in disks):
            raise NotPossibleError("this user may not mount a file system")

    def disk(self, target: Target) -> SmallDisk:
        return self._disks[target]


@contextmanager
def two_nodes(folder: Path) -> Iterator[Ground]:
    """This process is connected to the cluster. DLRL_MEMORY is that of its nodes."""
    memory = Path(os.environ["DLRL_MEMORY"]) / f"dlrl-{os.getuid()}"
    home = folder / "store"
    with (
        small_disk(memory, _MEMORY_MB) as of_state,
        small_disk(home, _STORE_MB) as of_store,
        _variables(DLRL_HOME=home),
    ):
        yield TwoNodes(folder, {Target.MEMORY: of_state, Target.STORE_DISK: of_store})


class OwnMemory(Ground):
    """Three nodes, each with a memory of its own, beside the head; the Master may be on any of them."""

    def __init__(self, folder: Path, nodes: NodesWithOwnMemory) -> None:
        super().__init__(folder)
        self._nodes = nodes

    def job(self, name: str, *, is_small: bool, **config: Any) -> RLJob:
        """Its durable storage is a file, so that nothing is ever there."""
        nowhere = self.folder / "nowhere"
        nowhere.touch()
        commits = {"every": 1, "state_folder": str(nowhere)}
        return exactness.job(
            is_small=is_small, silence_s=exactness.SHORT_SILENCE_S, spare_nodes=1, commits=commits, **config
        )

    def submit(self, job: RLJob, name: str, choice: float) -> WatchedJob:
        """The Master is on the head, or half of the time on the node where it is submitted from."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.before_group()
        if choice < 0.5:
            return super().submit(job, name, choice)
        node = chosen(2 * choice - 1, sorted(self._nodes.living()))
        there = NodeAffinitySchedulingStrategy(node, soft=False)

        def submit_there(path: list[str], variables: dict[str, str]) -> None:  # here, so that it is pickled by value
            sys.path.extend(one for one in path if one not in sys.path)
            os.environ.update(variables)
            job.submit(name, blocking=False)

        submit = ray.remote(num_cpus=0, max_retries=0)(submit_there).options(scheduling_strategy=there)
        ray.get(submit.remote(sys.path, {"DLRL_HOME": os.environ["DLRL_HOME"]}))
        watched = WatchedJob(name, JobHandle(name, find_actor(name, MASTER), connect()))
        watched.has_gcs = lambda: self.has_gcs
        return watched

    def before_group(self) -> None:
        self._nodes.fill_up(3)

    def raylets(self) -> Mapping[str, psutil.Process]:
        living = self._nodes.living()
        return {node: process for node, process in super().raylets().items() if node in living}

    def nodes_of(self, job: WatchedJob) -> dict[str, set[str]]:
        living, hosts = self._nodes.living(), dict[str, set[str]]()
        for name, place in job.places().items():
            if place.node_id in living:
                what = {MASTER: "the Master", TRAINER: "the trainer"}.get(name, "workloads")
                hosts.setdefault(place.node_id, set()).add(what)
        return hosts

    def kill_node(self, node: str) -> None:
        self._nodes.kill(node)


class OnRedis(Ground):
    """A GCS that can be killed, and the store on a server that can stand still."""

    has_servers = True

    def __init__(self, folder: Path, cluster: RedisCluster, store: RedisServer) -> None:
        super().__init__(folder)
        self._cluster = cluster
        self._servers = {Target.GCS_TABLES: cluster.tables, Target.STORE: store}

    def server(self, target: Target) -> RedisServer:
        return self._servers[target]

    def cluster(self) -> RedisCluster:
        return self._cluster


@contextmanager
def on_redis(folder: Path) -> Iterator[Ground]:
    """A cluster of its own, which this process is connected to."""
    with ExitStack() as end:
        cluster = RedisCluster()
        end.callback(cluster.stop)
        store = end.enter_context(RedisServer(cluster.folder / "store"))
        end.enter_context(_variables(DLRL_STORE=store.url))
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        end.callback(ray.shutdown)
        yield OnRedis(folder, cluster, store)


@contextmanager
def ground_of(setting: Setting, folder: Path) -> Iterator[Ground]:
    """The ground of this setting, with a cluster of its own."""
    from dlrl_core.plan import ClusterView
    from dlrl_local_ray.local_cluster import LocalCluster
    from soak.own_memory import nodes_with_own_memory

    if setting is Setting.REDIS:
        with on_redis(folder) as ground:
            yield ground
    elif setting is Setting.OWN_MEMORY:
        with nodes_with_own_memory() as nodes:
            yield OwnMemory(folder, nodes)
    else:
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as memory,
            ExitStack() as end,
        ):
            end.enter_context(_variables(DLRL_MEMORY=Path(memory)))
            cluster = LocalCluster()
            end.callback(cluster.stop)
            address = cluster.add_nodes(ClusterView.described(node_num=2, resources={"CPU": 16, "GPU": 4}))
            ray.init(address=address, log_to_driver=False, configure_logging=False)
            end.callback(ray.shutdown)
            yield end.enter_context(two_nodes(folder))


@contextmanager
def _variables(**values: object) -> Iterator[None]:
    """These variables are set, and afterwards as they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _shared(target: Target) -> Target:
    """Under which name it is hit by one at a time."""
    return {Target.STORE_DISK: Target.STORE, Target.GCS_TABLES: Target.GCS, Target.NODE: Target.RAYLET}.get(
        target, target
    )


def _raylets() -> dict[str, psutil.Process]:
    """All raylets of this machine, by the name of their socket."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "raylet":
                words = (word.partition("=") for word in process.cmdline())
                found.update({value: process for key, _, value in words if key == "--raylet_socket_name"})
    return found
