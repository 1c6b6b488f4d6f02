"""Copies on durable storage, a folder or a URL: whole or not there, one at a time, and every failure is known and heals."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from pathlib import Path

import pytest
from checks import wait_until
from state_samples import assert_is, commit, state

from dlrl_core.errors import DlrlError
from dlrl_state import durable_state, local_storage
from dlrl_state.durable_state import DurableCopies, storage_at
from dlrl_state.durable_storage import DurableStorage
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.version_folder import Version


@pytest.fixture
def memory(tmp_path, monkeypatch) -> StateMemory:
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))
    return StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "durable"


@pytest.fixture(params=["folder", "url"])
def storage(request, folder) -> DurableStorage:
    return storage_at(str(folder) if request.param == "folder" else folder.as_uri())


@pytest.fixture
def copies(storage) -> DurableCopies:
    return DurableCopies(storage)


@pytest.fixture
def local_copies(folder) -> DurableCopies:
    return DurableCopies(storage_at(str(folder)))


def written(memory: StateMemory, version: int) -> Version:
    memory.write(commit(version), [f"id{version - 1}"], state(version))
    return memory.held()[f"id{version}"]


def versions(copies: DurableCopies) -> list[int]:
    return sorted(version for version, _ in copies.status().commits)


def test_a_copy_is_found_when_memory_is_lost(memory, copies, tmp_path):
    copies.copy(written(memory, 1))
    shutil.rmtree(tmp_path / "memory")
    assert copies.held() == {"id1": commit(1)}
    found = copies.bring("id1", StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0"))
    assert found.commit == commit(1)
    assert found.damage() is None
    assert_is(saved_state(found.folder), 1)


def test_another_process_of_the_rank_finds_the_same_copies(memory, copies, storage):
    copies.copy(written(memory, 1))
    assert versions(DurableCopies(storage_at(storage.place))) == [1]


def test_a_copy_in_the_background_shows_while_it_runs(memory, copies, storage, monkeypatch):
    gate, ended = threading.Event(), threading.Event()
    write = storage.write
    monkeypatch.setattr(storage, "write", lambda version, progress: gate.wait(30) and write(version, progress))
    first, second = written(memory, 1), written(memory, 2)
    copies.start(first, ended.set)
    assert copies.status().copying == "id1"
    refused = threading.Event()
    copies.start(second, refused.set)
    assert refused.is_set()
    gate.set()
    assert ended.wait(30)
    assert (copies.status().copying, versions(copies)) == (None, [1])


def test_old_copies_go_but_the_newest_two_and_the_one_that_every_rank_has(memory, copies):
    for version in range(1, 7):
        copies.copy(written(memory, version))
        copies.prune(None)
    assert versions(copies) == [1, 2, 3, 4, 5, 6]
    copies.prune("id2")
    assert versions(copies) == [2, 5, 6]
    assert sorted(copies.held()) == ["id2", "id5", "id6"]


def test_a_full_disk_is_known_leaves_nothing_and_heals(memory, local_copies, folder, monkeypatch):
    copies = local_copies
    usage, first = shutil.disk_usage, written(memory, 1)
    with monkeypatch.context() as full:
        full.setattr(local_storage.shutil, "disk_usage", lambda path: usage(path)._replace(free=100))
        ended = threading.Event()
        copies.start(first, ended.set)
        assert ended.wait(30)
    status = copies.status()
    assert f"commit 1 was not copied to '{folder}': it needs 0.00 GB" in status.error
    assert list(folder.iterdir()) == []
    copies.copy(written(memory, 2))
    assert copies.status().error is None
    assert versions(copies) == [2]


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(memory, local_copies, folder, monkeypatch):
    def breaks(source, target, progress):
        target.write_bytes(b"ha")
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as full:
        full.setattr(local_storage, "_copy_file", breaks)
        with pytest.raises(DlrlError, match="No space left on device"):
            local_copies.copy(written(memory, 1))
    assert list(folder.iterdir()) == []
    assert local_copies.held() == {}


def test_a_copy_that_stands_still_is_given_up_and_never_published(memory, local_copies, folder, monkeypatch):
    """As on storage that hangs: the thread can't be ended, but what it does later does not count."""
    copies = local_copies
    gate, ended = threading.Event(), threading.Event()
    copy_file = local_storage._copy_file

    def stalls(source, target, progress):
        gate.wait(30)
        copy_file(source, target, progress)

    monkeypatch.setattr(local_storage, "_copy_file", stalls)
    copies.start(written(memory, 1), ended.set)
    wait_until(lambda: list(folder.glob("part-*")), "the copy has begun", 10)
    copies.abandon()
    assert copies.status().copying is None
    assert "stood still" in copies.status().error
    assert ended.is_set(), "its memory may be written over"
    refused = threading.Event()
    copies.start(written(memory, 2), refused.set)
    assert refused.is_set() and copies.status().copying is None, "no other copy while that one hangs"
    gate.set()
    wait_until(lambda: not list(folder.iterdir()), "what it had written is removed", 10)
    copies.copy(written(memory, 3))
    assert copies.status().error is None


def test_a_slow_disk_is_seen_to_move_piece_by_piece(memory, local_copies, monkeypatch):
    """A copy that is synced at its end alone would stand still for minutes, and be given up."""
    memory.write(commit(1), [], state(1, 10_000))
    version, fdatasync, seen = memory.held()["id1"], os.fdatasync, []

    def slow(file: int) -> None:
        job = local_copies._job
        assert job is not None
        seen.append(job.moved_at)
        job.moved_at = 0.0  # as if an hour had gone by
        fdatasync(file)

    monkeypatch.setattr(local_storage, "_PIECE", 10_000)
    monkeypatch.setattr(local_storage.os, "fdatasync", slow)
    local_copies.copy(version)
    assert len(seen) > 80_000 / 10_000
    assert all(seen), "between two of them it has moved"


def test_a_copy_of_a_version_that_was_written_over_meanwhile_does_not_count(memory, copies):
    version = written(memory, 1)
    with (version.folder / "dlrl_state.bytes").open("r+b") as file:
        file.write(b"changed!")
    with pytest.raises(DlrlError, match="it was changed while it was copied"):
        copies.copy(version)
    assert copies.held() == {}


def test_storage_that_can_not_be_listed_is_an_error_and_no_commits(copies, storage, monkeypatch):
    def refuses():
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage, "held", refuses)
    assert copies.held() == {}
    assert copies.status().error == f"'{storage.place}' can't be listed: Permission denied"


def test_storage_that_does_not_answer_is_an_error_and_no_commits(copies, storage, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(durable_state, "_LIST_S", 0.2)
    monkeypatch.setattr(storage, "held", lambda: gate.wait(30))
    assert copies.held() == {}
    assert copies.status().error == f"'{storage.place}' can't be listed: no answer for 0.2 s"
    gate.set()


def test_without_a_place_nothing_is_copied(memory):
    nowhere, ended = DurableCopies(None), threading.Event()
    nowhere.start(written(memory, 1), ended.set)
    nowhere.copy(written(memory, 2))
    assert ended.is_set()
    assert nowhere.held() == {}
