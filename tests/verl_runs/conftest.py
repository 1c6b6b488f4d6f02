"""One cluster and one set of tiny models for all runs of real verl, and processes that have imported it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checks import short_temp_folder
from framework_run import cluster, connected, make_tiny

IMPORTED = [
    "vllm.model_executor.layers.linear",
    "vllm.model_executor.layers.batch_invariant",
    "mbridge",
    "megatron.core.optimizer.distrib_optimizer",
    "verl.workers.engine_workers",
]


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


@pytest.fixture(scope="session")
def new_process() -> Iterator[Callable[..., Any]]:
    """Calls a function in a process of its own."""
    with _processes("spawn") as pool:
        yield lambda work, *args: pool.submit(work, *args).result()


@pytest.fixture(scope="session")
def imported_process() -> Iterator[Callable[..., Any]]:
    """Calls a function in a process of its own that has imported verl, Megatron and vLLM, as they are."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(IMPORTED)
    with _processes("forkserver") as pool:
        yield lambda work, *args: pool.submit(work, *args).result()


def _processes(method: str) -> ProcessPoolExecutor:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context(method)
    folder = str(short_temp_folder())
    return ProcessPoolExecutor(1, context, initializer=_use_temp_folder, initargs=(folder,), max_tasks_per_child=1)


def _use_temp_folder(folder: str) -> None:
    """verl leaves its locks of checkpoints in the temporary folder."""
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None
