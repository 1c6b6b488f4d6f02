"""Nodes that can be lost: several raylets on one machine, each with a memory of its own.

A node is killed with everything that runs on it, and its memory goes with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from dlrl_core.plan import ClusterView
from dlrl_local_ray.local_cluster import LocalCluster

QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
}


@dataclass
class NodesWithOwnMemory:
    """A head without devices, where the driver is, and nodes with four logical GPUs and a memory folder each."""

    cluster: LocalCluster
    base: Path
    folders: dict[str, Path] = field(default_factory=dict)
    """By the id of the node."""
    killed: set[str] = field(default_factory=set)

    def fill_up(self, count: int) -> str:
        """As many living nodes besides the head as that; returns the address."""
        import ray

        address = (
            self.cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16})) if not self.folders else ""
        )
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        while len(living := self.living()) < count:
            folder = Path(tempfile.mkdtemp(dir=self.base))
            shape = ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": 4})
            address = self.cluster.add_nodes(shape, env={"DLRL_MEMORY": str(folder)})
            [new] = self.living() - living
            self.folders[new] = folder
        return address

    def living(self) -> set[str]:
        import ray

        found = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")}
        return found - self.killed  # Ray takes some seconds to notice

    def raylet(self, node: str) -> psutil.Process:
        """The raylet of a node: its own id is in the command line of the agents below it."""
        for process in psutil.process_iter():
            try:
                if process.name() == "raylet" and process.environ().get("DLRL_MEMORY") == str(self.folders[node]):
                    return process
            except psutil.Error:
                continue
        raise AssertionError(f"node {node} has no raylet")

    def kill(self, node: str) -> None:
        """The node with everything on it, its memory included."""
        self.killed.add(node)
        raylet = self.raylet(node)
        below = raylet.children(recursive=True)
        for process in (raylet, *below):
            process.kill()
        psutil.wait_procs([*below], timeout=10)
        shutil.rmtree(self.folders[node])


@contextmanager
def nodes_with_own_memory() -> Iterator[NodesWithOwnMemory]:
    import ray

    before = {name: os.environ.get(name) for name in QUICK_TO_NOTICE}
    os.environ.update(QUICK_TO_NOTICE)
    base = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="dlrl-test-"))
    cluster = LocalCluster()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
    try:
        yield NodesWithOwnMemory(cluster=cluster, base=base)
    finally:
        ray.shutdown()
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)
