"""Clusters that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import assert_nothing_left

from dlrl_core.plan import ClusterView


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
