"""Committed state on two tiers: what counts as a version, and what a crash in between leaves."""

from __future__ import annotations

import shutil
import uuid

import pytest

from dlrl_core.workload.state_folder import Commit, StateFolder, forget_run, memory_root


@pytest.fixture
def run_id():
    name = f"test-{uuid.uuid4().hex}"
    yield name
    forget_run(name)


@pytest.fixture
def folder(run_id, tmp_path) -> StateFolder:
    return StateFolder(run_id=run_id, workload="actor-0", durable=str(tmp_path / "durable"))


def commit(version: int) -> Commit:
    return Commit(version=version, id=f"id{version}", step=version - 1, progress={"seen": version})


def save(folder: StateFolder, version: int) -> None:
    (folder.begin(version) / "state").write_text(f"state {version}")
    folder.keep(commit(version))


def test_a_version_counts_when_it_is_whole(folder):
    (folder.begin(1) / "state").write_text("half")
    assert folder.held() == {}
    folder.keep(commit(1))
    assert folder.held() == {1: commit(1)}
    assert (folder.folder_of(1) / "state").read_text() == "half"


def test_a_crash_while_the_next_one_is_written_leaves_the_last_one_whole(folder, run_id, tmp_path):
    save(folder, 1)
    (folder.begin(2) / "state").write_text("half")
    after = StateFolder(run_id=run_id, workload="actor-0", durable=str(tmp_path / "durable"))
    assert after.held() == {1: commit(1)}
    save(after, 2)
    assert sorted(after.held()) == [1, 2]


def test_two_versions_are_kept(folder):
    for version in range(1, 6):
        save(folder, version)
    assert sorted(folder.held()) == [4, 5]


def test_a_version_is_found_on_durable_storage_when_memory_is_lost(folder, run_id):
    save(folder, 3)
    folder.copy_to_durable(3)
    save(folder, 4)
    shutil.rmtree(memory_root(run_id))
    assert folder.held() == {3: commit(3)}
    assert (folder.folder_of(3) / "state").read_text() == "state 3"


def test_a_copy_that_was_interrupted_does_not_count(folder, run_id, tmp_path):
    save(folder, 1)
    part = tmp_path / "durable" / "actor-0" / "1.part"
    part.mkdir(parents=True)
    (part / "state").write_text("ha")
    shutil.rmtree(memory_root(run_id))
    assert folder.held() == {}


def test_what_comes_after_the_commit_that_is_gone_back_to_never_happened(folder):
    for version in (1, 2):
        save(folder, version)
        folder.copy_to_durable(version)
    folder.forget_after(1)
    assert sorted(folder.held()) == [1]


def test_a_run_leaves_nothing_in_memory(folder, run_id):
    save(folder, 1)
    assert memory_root(run_id).exists()
    forget_run(run_id)
    assert not memory_root(run_id).exists()


def test_state_is_readable_by_its_owner_alone(folder):
    save(folder, 1)
    assert folder.folder_of(1).stat().st_mode & 0o077 == 0


def test_a_commit_survives_json():
    assert Commit.from_json(commit(7).to_json()) == commit(7)
