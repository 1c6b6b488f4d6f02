"""One cluster and one set of tiny models for all runs of real verl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_run import cluster, connected, make_tiny


@pytest.fixture(scope="session")
def tiny_assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("verl_ppo", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def cluster_4_gpus() -> Iterator[str]:
    with cluster(gpus=4) as address:
        yield address


@pytest.fixture
def ray_4_gpus(cluster_4_gpus: str) -> Iterator[str]:
    with connected(cluster_4_gpus) as address:
        yield address
