"""Buffers written and read as fast as memory allows."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from checks import wait_until

from dlrl_core.workload import state_files
from dlrl_core.workload.state_files import Commit, StateFolder, forget_run, load_buffers, save_buffers


@pytest.fixture
def folder():
    run_id = f"test-{uuid.uuid4().hex}"
    yield StateFolder(run_id=run_id, workload="actor-0", durable=None)
    forget_run(run_id)


def save(folder: StateFolder, version: int, **buffers) -> None:
    save_buffers(folder.begin(version), buffers)
    folder.keep(Commit(version=version, id=str(version), step=version, progress={}))


def load(folder: StateFolder, version: int) -> dict[str, np.ndarray]:
    return {name: np.array(view) for name, view in load_buffers(folder.folder_of(version)).items()}


def test_buffers_come_back_with_shape_and_type(folder):
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    save(folder, 1, weights=weights, steps=np.array([7], dtype=np.int64), nothing=np.zeros(0))
    loaded = load(folder, 1)
    assert loaded["weights"].dtype == np.float32
    assert np.array_equal(loaded["weights"], weights)
    assert loaded["steps"].tolist() == [7]
    assert loaded["nothing"].size == 0


@pytest.mark.parametrize(
    "array", [np.ones((2, 3), np.float16), np.zeros((0, 4)), np.array(True), np.ones((4, 4))[:, ::2]]
)
def test_any_array_comes_back(folder, array):
    save(folder, 1, array=array)
    back = load(folder, 1)["array"]
    assert (back.dtype, back.shape) == (array.dtype, np.ascontiguousarray(array).shape)
    assert np.array_equal(back, np.ascontiguousarray(array))


def test_each_version_keeps_its_own_values_while_files_are_written_over(folder):
    for version in range(1, 9):
        save(folder, version, state=np.full(100_000, version, dtype=np.uint8))
        for held in folder.held():
            assert set(load(folder, held)["state"].tolist()) == {held}


def test_a_buffer_may_grow_and_shrink_from_version_to_version(folder):
    for version, size in enumerate([10, 1000, 10, 0, 500, 20, 20, 20], start=1):
        save(folder, version, state=np.full(size, version, dtype=np.uint8))
        assert load(folder, version)["state"].tolist() == [version] * size


def test_memory_of_files_that_are_gone_is_given_back(folder):
    """Many buffers, then one: what is held in the end is of the few versions that there are."""
    for version in range(1, 12):
        count = 10 if version < 5 else 1
        save(folder, version, **{f"b{i}": np.ones(1000) for i in range(count)})
        root = folder.folder_of(version).parent
        wait_until(lambda root=root: not list(root.glob("unused-*")), "what is not written over is removed")
    assert len(state_files._mapped) <= 4
