"""One cluster and one set of tiny models for all runs of real OpenRLHF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_run import cluster, connected, make_tiny


@pytest.fixture(scope="session")
def tiny_assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("openrlhf_ppo", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def cluster_8_gpus() -> Iterator[str]:
    with cluster(gpus=8) as address:
        yield address


@pytest.fixture
def ray_8_gpus(cluster_8_gpus: str) -> Iterator[str]:
    with connected(cluster_8_gpus) as address:
        yield address
