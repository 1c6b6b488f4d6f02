"""Durable storage at a URL, through fsspec's own file system for files: what is whole, what is swept, what fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest
import stand_in_storage
from checks import wait_until
from fsspec.registry import known_implementations
from state_samples import assert_is, commit, state

from dlrl_core.errors import DlrlError
from dlrl_core.workload.captured_state import arrays_of, capture_arrays
from dlrl_core.workload.state_keeper import KeeperRequest
from dlrl_state import url_storage
from dlrl_state.durable_state import DurableCopies, storage_at
from dlrl_state.keeper import NodeMemoryKeeper
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.version_folder import Version

WORDS = 10**6 // 8


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch) -> None:
    """Memory of this test alone, and objects so small that files and pieces have several."""
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))
    monkeypatch.setattr(url_storage, "_OBJECT", 1000)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def copies(folder) -> DurableCopies:
    return DurableCopies(storage_at(folder.as_uri()))


@pytest.fixture
def memory() -> StateMemory:
    return new_memory()


@pytest.fixture
def faulty():
    yield (kind := stand_in_storage.register())
    kind.gate.set()


def new_memory() -> StateMemory:
    """As on another node: nothing is in it."""
    return StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")


def written(memory: StateMemory, version: int) -> Version:
    memory.write(commit(version), [f"id{version - 1}"], state(version))
    return memory.held()[f"id{version}"]


def objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---- whole, or not there


def test_a_version_comes_back_bit_by_bit_into_the_memory_of_another_node(memory, copies, folder):
    copies.copy(written(memory, 1))
    assert len(objects(folder)) > 8
    elsewhere = new_memory()
    assert_is(saved_state(copies.bring("id1", elsewhere).folder), 1)
    assert list(elsewhere.held()) == ["id1"]


@pytest.mark.parametrize("size", [0, 1, 63, 124, 125, 126, 1000])
def test_pieces_of_any_size_and_place_come_back(memory, copies, size):
    """Objects have 1000 bytes: pieces end before, at and after their ends."""
    arrays = {str(n): np.arange(n, n + size + n, dtype=np.float64) for n in range(5)}
    memory.write(commit(1), [], capture_arrays(arrays))
    copies.copy(memory.held()["id1"])
    found = arrays_of(saved_state(copies.bring("id1", new_memory()).folder))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_files_of_any_name_come_back(memory, copies):
    files = {"a [b]*?.pt": b"x" * 2500, "deep/er/%20 é": b"y", "empty": b""}

    def fill(part: Path) -> None:
        for name, data in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(data)

    memory.write_files(commit(1), [], fill)
    copies.copy(memory.held()["id1"])
    brought = copies.bring("id1", new_memory())
    assert {name: (brought.folder / name).read_bytes() for name in files} == files


@pytest.mark.parametrize("what", ["no manifest", "half a manifest", "an object is gone", "an object is short"])
def test_a_version_that_is_not_whole_is_none(memory, copies, folder, what):
    copies.copy(written(memory, 1))
    [manifest] = folder.rglob("dlrl_commit.json")
    first = next(path for path in objects(folder) if path != manifest)
    if what == "no manifest":
        manifest.unlink()
    elif what == "half a manifest":
        manifest.write_bytes(manifest.read_bytes()[:100])
    elif what == "an object is gone":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:-1])
    assert copies.held() == {}
    copies.copy(memory.held()["id1"])
    assert list(copies.held()) == ["id1"], "the next copy is whole"


def test_a_copy_of_what_is_there_writes_nothing(memory, copies, folder):
    copies.copy(written(memory, 1))
    before = {path: path.stat().st_mtime_ns for path in objects(folder)}
    DurableCopies(storage_at(folder.as_uri())).copy(memory.held()["id1"])
    assert {path: path.stat().st_mtime_ns for path in objects(folder)} == before


def test_a_changed_byte_is_found_on_load_and_the_version_is_passed_over(memory, folder):
    copies = DurableCopies(storage_at(f"{folder.as_uri()}/actor-0"))
    for version in (1, 2):
        copies.copy(written(memory, version))
    damaged = next(path for path in objects(next(folder.rglob("2-id2"))) if path.name.endswith("-3"))
    damaged.write_bytes(b"!" * 1000)
    request = KeeperRequest(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0", durable=folder.as_uri())
    keeper = NodeMemoryKeeper(request)
    assert sorted(keeper.held().commits) == ["id1", "id2"]
    damage = keeper.damage("id2")
    assert f"'{folder.as_uri()}/actor-0/2-id2'" in damage and "is not what was written" in damage
    assert list(keeper.held().commits) == ["id1"]
    assert keeper.damage("id1") is None


def test_going_back_removes_nothing_from_memory(memory, copies):
    copies.copy(written(memory, 1))
    for version in (2, 3):
        written(memory, version)
    assert sorted(memory.held()) == ["id2", "id3"]
    assert_is(saved_state(copies.bring("id1", memory).folder), 1)
    assert sorted(memory.held()) == ["id1", "id2", "id3"]


# ---- other processes


def copier(copies_to: str, *args: str) -> subprocess.Popen:
    script = Path(__file__).with_name("url_copier.py")
    command = [sys.executable, str(script), copies_to, f"test-{uuid.uuid4().hex}", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_another_process_copied_is_found(copies, folder):
    with copier(folder.as_uri(), "1") as process:
        assert process.wait(60) == 0
    assert_is(saved_state(copies.bring("id1", new_memory()).folder), 1)


def test_what_a_killed_process_left_is_no_version_and_is_swept_when_a_later_one_counts(memory, copies, folder):
    with copier(folder.as_uri(), "2", "hang") as process:
        assert process.stdout.readline() == "hangs\n"
        process.kill()
    assert objects(folder / "2-id2"), "some objects were written"
    assert copies.held() == {}
    copies.copy(written(memory, 1))
    copies.prune("id1")
    assert (folder / "2-id2").exists(), "another process might be writing it"
    copies.copy(written(memory, 3))
    copies.prune("id3")
    assert sorted(path.name for path in folder.iterdir()) == ["1-id1", "3-id3"]


def test_a_finished_job_leaves_nothing(memory, folder):
    DurableCopies(storage_at(f"{folder.as_uri()}/job/run/actor-0")).copy(written(memory, 1))
    NodeMemoryKeeper.forget_durable(f"{folder.as_uri()}/job/run")
    assert list((folder / "job").iterdir()) == []
    NodeMemoryKeeper.forget_durable(f"{folder.as_uri()}/job/run")


def test_what_can_not_be_removed_at_the_end_is_told_without_passwords(capfd):
    NodeMemoryKeeper.forget_durable("ftp://user:sesame@127.0.0.1:1/job/run")
    told = capfd.readouterr().out
    assert "127.0.0.1:1/job/run' could not be removed: Connection refused" in told and "sesame" not in told


# ---- storage that fails, and heals


@pytest.fixture
def small(tmp_path):
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


def test_storage_that_becomes_full_on_the_way_leaves_nothing_and_heals(memory, small, monkeypatch):
    monkeypatch.setattr(url_storage, "_OBJECT", 2**20)
    memory.write(commit(1), [], state(1, 30 * WORDS))
    (small / "other").write_bytes(bytes(50 * 10**6))
    place = (small / "durable").as_uri()
    copies = DurableCopies(storage_at(place))
    with pytest.raises(DlrlError, match=f"commit 1 was not copied to '{place}': No space left on device"):
        copies.copy(memory.held()["id1"])
    assert list((small / "durable").iterdir()) == []
    (small / "other").unlink()
    copies.copy(memory.held()["id1"])
    assert copies.status().error is None
    assert_is(saved_state(copies.bring("id1", new_memory()).folder), 1, 30 * WORDS)


def test_storage_that_is_read_only_is_told_and_heals(memory, small):
    copies, version = DurableCopies(storage_at((small / "durable").as_uri())), written(memory, 1)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    with pytest.raises(DlrlError, match="Read-only file system"):
        copies.copy(version)
    subprocess.run(["mount", "-o", "remount,rw", small], check=True)
    copies.copy(version)
    assert copies.status().error is None


def test_a_copy_to_storage_that_hangs_is_seen_to_stand_still_given_up_and_never_published(memory, folder, faulty):
    copies, ended = DurableCopies(storage_at(f"faulty://{folder}")), threading.Event()
    assert copies.held() == {}
    faulty.gate.clear()
    copies.start(written(memory, 1), ended.set)
    assert faulty.waiting.wait(30)
    wait_until(lambda: copies.status().still_s > 0.3, "it stands still", 10)
    assert copies.status().copying == "id1"
    copies.abandon()
    assert ended.is_set(), "its memory may be written over"
    assert f"a copy to 'faulty://{folder}' stood still" in copies.status().error
    faulty.gate.set()
    wait_until(lambda: not objects(folder) and not list(folder.glob("1-*")), "what it had written is removed", 10)
    copies.copy(written(memory, 2))
    assert (list(copies.held()), copies.status().error) == (["id2"], None)


def test_a_load_from_storage_that_hangs_ends_and_says_so(memory, folder, faulty, monkeypatch):
    place = f"faulty://{folder}"
    DurableCopies(storage_at(f"{place}/actor-0")).copy(written(memory, 1))
    monkeypatch.setattr(url_storage, "_STILL_S", 0.3)
    keeper = NodeMemoryKeeper(KeeperRequest(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0", durable=place))
    assert list(keeper.held().commits) == ["id1"]
    read = url_storage._read_objects

    def hangs(*args):
        faulty.gate.clear()
        return read(*args)

    with monkeypatch.context() as patched:
        patched.setattr(url_storage, "_read_objects", hangs)
        assert "no answer for 0.3 s" in keeper.damage("id1")
    faulty.gate.set()
    assert keeper.held().commits == {}, "passed over, so that a search ends"
    assert not list(Path(keeper.held().place).rglob("part-*"))


def test_errors_of_a_storages_own_library_are_told_with_place_and_cause_and_heal(memory, folder, faulty):
    copies = DurableCopies(storage_at(f"faulty://{folder}"))
    faulty.error = stand_in_storage.NoCredentialsError("Unable to locate credentials")
    with pytest.raises(DlrlError) as caught:
        copies.copy(written(memory, 1))
    what = "NoCredentialsError: Unable to locate credentials"
    assert str(caught.value) == f"commit 1 was not copied to 'faulty://{folder}': {what}"
    faulty.error = None
    copies.copy(written(memory, 2))
    assert copies.status().error is None


def test_a_folder_that_was_removed_meanwhile_is_made_again(memory, copies, folder):
    copies.copy(written(memory, 1))
    shutil.rmtree(folder)
    copies.copy(written(memory, 2))
    assert list(copies.held()) == ["id2"]


# ---- before a job starts


def missing_scheme() -> tuple[str, str]:
    """A kind of storage whose package is not installed here, and what fsspec says about it."""
    for scheme, known in known_implementations.items():
        try:
            fsspec.get_filesystem_class(scheme)
        except ImportError:
            return scheme, known["err"]
    pytest.skip("the packages of all kinds of storage are installed")


def test_a_kind_of_storage_that_needs_a_package_says_which():
    scheme, what = missing_scheme()
    with pytest.raises(DlrlError) as caught:
        NodeMemoryKeeper.check_durable(f"{scheme}://bucket/folder/job/run")
    assert str(caught.value).startswith(f"durable storage '{scheme}://bucket/folder/job/run' can't be used yet: {what}")


def test_an_unknown_kind_of_storage_is_refused():
    with pytest.raises(DlrlError, match="fsspec knows no storage of that kind"):
        NodeMemoryKeeper.check_durable("s33://bucket/job/run")


def test_a_wildcard_is_refused_because_removing_could_take_more_than_ours():
    with pytest.raises(DlrlError, match="has a wildcard"):
        NodeMemoryKeeper.check_durable("file:///tmp/state-*/job/run")


def test_without_fsspec_a_url_says_what_to_install_and_a_folder_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DlrlError, match=r"pip install 'dlrl\[fsspec\]'"):
        NodeMemoryKeeper.check_durable("s3://bucket/job/run")
    NodeMemoryKeeper.check_durable("/shared/job/run")
