"""Tiny models for all runs of real verl, and processes that have imported it."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("verl") else ["test_*.py"]

MAKE_TINY = Path(__file__).parents[2] / "examples" / "verl_ppo" / "make_tiny.py"
IMPORTED = [
    "vllm.model_executor.layers.linear",
    "vllm.model_executor.layers.batch_invariant",
    "mbridge",
    "megatron.core.optimizer.distrib_optimizer",
    "verl.workers.engine_workers",
]


@pytest.fixture(scope="session")
def tiny_assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, str(MAKE_TINY), str(folder)], check=True, capture_output=True)
    return folder


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
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method), max_tasks_per_child=1)
