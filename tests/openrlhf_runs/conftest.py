"""One cluster and one set of tiny models for all runs of real OpenRLHF."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checks import assert_nothing_left, wait_until
from framework_run import engine_processes

from dlrl_core.plan import ClusterView

MAKE_TINY = Path(__file__).parents[2] / "examples" / "openrlhf_ppo" / "make_tiny.py"


@pytest.fixture(scope="session")
def tiny_assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, str(MAKE_TINY), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def cluster_8_gpus() -> Iterator[str]:
    from dlrl_core.scheduler.local_cluster import LocalCluster

    cluster = LocalCluster()
    try:
        yield cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": 8}))
    finally:
        cluster.stop()


@pytest.fixture
def ray_8_gpus(cluster_8_gpus: str) -> Iterator[str]:
    """After the test nothing may be left: no actor, no state, no engine of vLLM."""
    import ray

    ray.init(address=cluster_8_gpus, log_to_driver=False, configure_logging=False)
    try:
        yield cluster_8_gpus
        assert_nothing_left()
        wait_until(lambda: not engine_processes(), "all processes of vLLM engines are gone")
    finally:
        ray.shutdown()
