"""Committed state on two tiers: what counts as a version, and what a crash in between leaves."""

from __future__ import annotations

import shutil
import threading
import uuid

import pytest
from checks import wait_until

from dlrl_core.workload.state_files import Commit, StateFolder, forget_run, left_in_memory, memory_root


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


def test_memory_is_where_the_node_says(run_id, tmp_path, monkeypatch):
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "new"))
    save(StateFolder(run_id=run_id, workload="actor-0", durable=None), 1)
    assert [one.read_text() for one in tmp_path.glob(f"new/dlrl-*/{run_id}/**/state")] == ["state 1"]
    forget_run(run_id)
    assert list(tmp_path.glob("new/*")) == []


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
    assert left_in_memory(run_id) == [memory_root(run_id)]
    forget_run(run_id)
    assert left_in_memory(run_id) == []


def test_what_one_who_was_killed_had_not_yet_removed_is_removed_by_the_next(folder, run_id):
    save(folder, 1)
    memory_root(run_id).rename(memory_root(run_id).with_name(f"{run_id}-gone"))
    assert len(left_in_memory(run_id)) == 1
    forget_run(run_id)
    assert left_in_memory(run_id) == []


def test_state_is_readable_by_its_owner_alone(folder):
    save(folder, 1)
    assert folder.folder_of(1).stat().st_mode & 0o077 == 0


def test_a_commit_survives_json():
    assert Commit.from_json(commit(7).to_json()) == commit(7)


def durable_versions(folder: StateFolder) -> list[int]:
    return sorted(version for version, _ in folder.durable().commits)


def test_a_stale_copy_of_the_same_version_is_replaced(folder, run_id):
    save(folder, 1)
    folder.copy_to_durable(1)
    new = Commit(version=1, id="another attempt", step=0, progress={})
    (folder.begin(1) / "state").write_text("new state")
    folder.keep(new)
    folder.copy_to_durable(1)
    shutil.rmtree(memory_root(run_id))
    assert folder.held() == {1: new}
    assert (folder.folder_of(1) / "state").read_text() == "new state"
    assert folder.durable().commits == {(1, "another attempt")}


def test_the_durable_version_that_all_ranks_have_is_kept(folder):
    """Newer ones may be missing on a rank whose copies fail."""
    for version in (1, 2, 3, 4):
        save(folder, version)
        folder.copy_to_durable(version)
    assert durable_versions(folder) == [1, 2, 3, 4]
    for version in (5, 6):
        (folder.begin(version) / "state").write_text("state")
        folder.keep(commit(version), durable_on_all=2)
        folder.copy_to_durable(version)
    assert durable_versions(folder) == [2, 5, 6]
    assert set(folder.held()) >= {2, 5, 6}


def test_one_version_is_copied_at_a_time_and_memory_stays_bounded(folder, monkeypatch):
    go_on = threading.Event()
    copytree = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", lambda *args: go_on.wait(10) and copytree(*args))
    save(folder, 1)
    folder.start_copy(1)
    for version in range(2, 8):
        save(folder, version)
        folder.start_copy(version)
    assert folder.durable().is_copying
    assert sorted(folder.held()) == [1, 6, 7]
    go_on.set()
    wait_until(lambda: not folder.durable().is_copying, "the copy is done")
    assert durable_versions(folder) == [1]


def test_a_copy_that_fails_is_said_and_can_be_tried_again(folder, tmp_path, capsys):
    (tmp_path / "durable").write_text("in the way")
    save(folder, 1)
    folder.start_copy(1)
    wait_until(lambda: not folder.durable().is_copying, "the copy has failed")
    wait_until(lambda: "could not be copied to durable storage" in capsys.readouterr().err, "it is said")
    assert durable_versions(folder) == []
    (tmp_path / "durable").unlink()
    folder.copy_to_durable(1)
    assert durable_versions(folder) == [1]


def test_a_copy_that_the_end_of_the_run_cuts_off_is_no_failure(folder, run_id, monkeypatch, capsys):
    copytree = shutil.copytree

    def ended_and_copied(*args):
        forget_run(run_id)
        copytree(*args)

    save(folder, 1)
    monkeypatch.setattr(shutil, "copytree", ended_and_copied)
    folder.start_copy(1)
    wait_until(lambda: not folder.durable().is_copying, "the copy has ended")
    wait_until(lambda: "dlrl-durable" not in [thread.name for thread in threading.enumerate()], "its thread has ended")
    assert capsys.readouterr().err == ""
    assert durable_versions(folder) == []


def test_a_commit_that_is_given_up_while_it_is_copied_does_not_become_durable(folder, monkeypatch):
    copytree = shutil.copytree

    def copied_and_forgotten(*args):
        copytree(*args)
        folder.forget_after(0)

    save(folder, 1)
    monkeypatch.setattr(shutil, "copytree", copied_and_forgotten)
    with pytest.raises(FileNotFoundError):
        folder.copy_to_durable(1)
    assert folder.held() == {}
