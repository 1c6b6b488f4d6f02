"""Clusters and checks that all tests share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlrl_core.plan import ClusterView

DEADLINE_S = 30.0


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """What the condition returns as soon as it is true."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


@pytest.fixture(autouse=True)
def dlrl_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of a test's jobs go to a folder of the test; no cluster is named by accident."""
    home = tmp_path / "dlrl_home"
    monkeypatch.setenv("DLRL_HOME", str(home))
    for name in ("RAY_ADDRESS", "DLRL_STORE", "DLRL_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def cluster_2_nodes_8_gpus() -> Iterator[str]:
    """The address of two nodes with 4 logical GPUs each. It dies with the test run, however that ends."""
    from dlrl_core.scheduler.local_cluster import LocalCluster

    cluster = LocalCluster()
    try:
        yield cluster.add_nodes(ClusterView.described(node_num=2, resources={"CPU": 16, "GPU": 4}))
    finally:
        cluster.stop()


@pytest.fixture
def ray_2_nodes_8_gpus(cluster_2_nodes_8_gpus: str) -> Iterator[str]:
    """This process is connected to the cluster; after the test, nothing of any job may be left on it."""
    import ray

    ray.init(address=cluster_2_nodes_8_gpus, log_to_driver=False, configure_logging=False)
    try:
        yield cluster_2_nodes_8_gpus
        assert_nothing_left()
    finally:
        ray.shutdown()


def assert_nothing_left() -> None:
    """No actor, no placement group and no process of a job is left on the connected cluster."""
    from dlrl_core.scheduler.cluster_probe import living_actors, standing_reservations

    wait_until(lambda: not living_actors(), "all actors of jobs are gone")
    wait_until(lambda: not standing_reservations(), "all reservations are released")
    wait_until(lambda: not job_processes(), "all processes of jobs are gone")


def job_processes() -> list[str]:
    """Command lines of Ray workers that are a Master, a trainer or a workload."""
    hosts = ("ray::Master", "ray::TrainerHost", "ray::WorkloadHost")
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if line.startswith(hosts):
            found.append(line)
    return found


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children_of_this_process() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
