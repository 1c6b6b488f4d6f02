"""Real file systems that are too small or read-only: a mounted tmpfs, where this user may mount one."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from state_samples import assert_is, commit, state

from dlrl_core.errors import DlrlError
from dlrl_state.durable_state import DurableCopies
from dlrl_state.local_storage import LocalStorage
from dlrl_state.state_memory import StateMemory, saved_state

WORDS = 10**6 // 8
"""Numbers in a megabyte."""


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A file system of 64 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def memory(small, monkeypatch) -> StateMemory:
    monkeypatch.setenv("DLRL_MEMORY", str(small))
    return StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")


def test_two_versions_that_do_not_fit_are_refused_before_a_byte_is_written(memory, small):
    with pytest.raises(OSError, match="has 0.07 GB free, and two versions of this state need 0.08 GB"):
        memory.write(commit(1), [], state(1, 40 * WORDS))
    assert list(small.rglob("*.bytes")) == []


def test_a_state_that_grows_beyond_its_memory_fails_and_the_last_version_stays(memory):
    memory.write(commit(1), [], state(1, 20 * WORDS))
    with pytest.raises(OSError, match="No space left"):
        memory.write(commit(2), ["id1"], state(2, 60 * WORDS))
    assert_is(saved_state(memory.held()["id1"].folder), 1, 20 * WORDS)
    memory.write(commit(3), ["id1"], state(3, 20 * WORDS))
    assert sorted(memory.held()) == ["id1", "id3"]


def test_memory_that_others_fill_meanwhile_fails_a_commit_and_heals(memory, small):
    memory.write(commit(1), [], state(1, 20 * WORDS))
    (small / "other").write_bytes(bytes(40 * 10**6))
    with pytest.raises(OSError, match="No space left"):
        memory.write(commit(2), ["id1"], state(2, 20 * WORDS))
    (small / "other").unlink()
    memory.write(commit(3), ["id1"], state(3, 20 * WORDS))
    assert_is(saved_state(memory.held()["id3"].folder), 3, 20 * WORDS)


def test_a_read_only_disk_is_told_and_heals(tmp_path, small, monkeypatch):
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))
    memory = StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")
    memory.write(commit(1), [], state(1))
    copies = DurableCopies(LocalStorage(small / "durable"))
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    with pytest.raises(DlrlError, match="Read-only file system"):
        copies.copy(memory.held()["id1"])
    subprocess.run(["mount", "-o", "remount,rw", small], check=True)
    copies.copy(memory.held()["id1"])
    assert copies.status().error is None


def test_a_full_disk_leaves_no_part(tmp_path, small, monkeypatch):
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))
    memory = StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")
    memory.write(commit(1), [], state(1, 30 * WORDS))
    (small / "other").write_bytes(bytes(50 * 10**6))
    copies = DurableCopies(LocalStorage(small / "durable"))
    with pytest.raises(DlrlError, match=r"it needs 0.03 GB, and 0.02 GB are free there"):
        copies.copy(memory.held()["id1"])
    assert list((small / "durable").iterdir()) == []
