"""Committed state in memory: what counts as a version, what a crash leaves, what is removed, and whose it is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest
import xxhash
from checks import wait_until
from state_samples import assert_is, commit, gated, state

from dlrl_core.errors import DlrlError
from dlrl_core.workload.captured_state import arrays_of, capture_arrays
from dlrl_state import run_memory, state_memory
from dlrl_state.run_memory import dead_runs, forget_run, left_in_memory, own_folder, run_folders, sweep
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.version_folder import Piece, new_part, publish, published


@pytest.fixture(autouse=True)
def memory_folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "memory"
    monkeypatch.setenv("DLRL_MEMORY", str(folder))
    return folder


@pytest.fixture
def run_id() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def memory(run_id) -> StateMemory:
    return StateMemory(run_id=run_id, workload="actor-0")


def folder_of(memory: StateMemory, id_: str) -> Path:
    return memory.held()[id_].folder


def in_other_process(code: str) -> str:
    """Run code that uses StateMemory in a process of its own; returns what it prints."""
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_a_version_is_held_when_it_is_whole(memory):
    gate = threading.Event()
    writing = threading.Thread(target=memory.write, args=(commit(1), [], gated(state(5), gate)))
    writing.start()
    assert memory.held() == {}
    gate.set()
    writing.join()
    assert [version.commit for version in memory.held().values()] == [commit(1)]
    assert_is(saved_state(folder_of(memory, "id1")), 5)


def test_state_that_a_workload_writes_itself_is_kept_as_its_files(memory):
    size = memory.write_files(commit(1), [], lambda part: (part / "mine").write_text("state 1"))
    assert size == len("state 1")
    assert (folder_of(memory, "id1") / "mine").read_text() == "state 1"
    assert saved_state(folder_of(memory, "id1")) is None


def test_at_most_two_versions_lie_in_memory_and_the_memory_of_the_oldest_is_written_over(memory, memory_folder):
    inodes, most = [], 0
    for version in range(1, 7):
        keep = [f"id{version - 1}"] if version > 1 else []
        memory.write(commit(version), keep, state(version))
        files = list(memory_folder.rglob("*.bytes")) + list(memory_folder.rglob("pool"))
        most = max(most, len(files))
        inodes.append((folder_of(memory, f"id{version}") / "dlrl_state.bytes").stat().st_ino)
        assert_is(saved_state(folder_of(memory, f"id{version}")), version)
    assert most == 2
    assert inodes[0] == inodes[2] == inodes[4] and inodes[1] == inodes[3] == inodes[5]
    assert sorted(memory.held()) == ["id5", "id6"]


def test_a_version_that_counts_stays_however_many_attempts_after_it_fail(memory):
    memory.write(commit(1), [], state(1))
    for version in (2, 3, 4):
        memory.write(commit(version), ["id1"], state(version))
    assert sorted(memory.held()) == ["id1", "id4"]
    assert_is(saved_state(folder_of(memory, "id1")), 1)


def test_two_attempts_at_one_version_are_two_folders(memory):
    memory.write(commit(1, "a"), [], state(1))
    memory.write(commit(1, "b"), ["id1a"], state(2))
    assert_is(saved_state(folder_of(memory, "id1a")), 1)
    assert_is(saved_state(folder_of(memory, "id1b")), 2)


def test_a_state_of_another_size_gets_memory_of_its_own_size(memory):
    for version, size in ((1, 1000), (2, 1000), (3, 10), (4, 5000)):
        memory.write(commit(version), [f"id{version - 1}"], state(version, size))
        assert_is(saved_state(folder_of(memory, f"id{version}")), version, size)


def test_restored_arrays_and_the_commit_do_not_reach_each_other(memory):
    memory.write(commit(1), [], state(1))
    saved = saved_state(folder_of(memory, "id1"))
    saved.buffers["weights"][0:8] = b"\xff" * 8
    assert_is(saved_state(folder_of(memory, "id1")), 1)
    kept = arrays_of(saved_state(folder_of(memory, "id1")))
    for version in (2, 3, 4):
        memory.write(commit(version), [], state(version))
    assert (kept["weights"] == 1).all(), "the memory it came from was written over"


def test_arrays_that_could_not_come_back_are_refused_by_name():
    with pytest.raises(TypeError, match="a commit can't hold array 'words' of dtype object"):
        capture_arrays({"words": np.array(["a", None])})


def test_a_process_that_dies_while_it_writes_leaves_the_last_version_and_its_part_is_removed(memory, run_id):
    memory.write(commit(1), [], state(1))
    in_other_process(
        "import os, threading\n"
        "from state_samples import commit, gated, state\n"
        "from dlrl_state.state_memory import StateMemory\n"
        f"memory = StateMemory(run_id={run_id!r}, workload='actor-0')\n"
        "writing = threading.Thread(target=memory.write, args=(commit(2), ['id1'], gated(state(2), threading.Event())))\n"
        "writing.daemon = True\n"
        "writing.start()\n"
        "while not list(memory._roots()[0].glob('part-*')): pass\n"
        "os._exit(0)\n"
    )
    root = Path(memory.place())
    assert len(list(root.glob("part-*"))) == 1
    assert list(memory.held()) == ["id1"]
    memory.write(commit(3), ["id1"], state(3))
    assert list(root.glob("part-*")) == []
    assert sorted(memory.held()) == ["id1", "id3"]


def test_a_version_of_another_process_that_lives_is_not_removed(memory, run_id):
    """Such as one whose node was declared dead: what it holds is never touched, nor does it touch what others hold."""
    code = (
        "import sys\n"
        "from state_samples import commit, state\n"
        "from dlrl_state.state_memory import StateMemory\n"
        f"StateMemory(run_id={run_id!r}, workload='actor-0').write(commit(1, 'z'), [], state(9))\n"
        "print('written', flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"]
    memory.write(commit(1), [], state(1))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "written\n"
        assert sorted(memory.held()) == ["id1", "id1z"]
        memory.write(commit(2), ["id1"], state(2))
        assert sorted(memory.held()) == ["id1", "id1z", "id2"]
        other.stdin.close()
    memory.write(commit(3), ["id2"], state(3))
    assert sorted(memory.held()) == ["id2", "id3"]


def test_a_commit_of_a_trainer_that_was_replaced_removes_no_newer_version(memory):
    memory.write(commit(7), [], state(7))
    memory.write(commit(3), ["id2"], state(3))
    assert sorted(memory.held()) == ["id3", "id7"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "dlrl_commit.json").write_text('{"commit":'),
        lambda folder: (folder / "dlrl_commit.json").unlink(),
        lambda folder: os.truncate(folder / "dlrl_state.bytes", 8),
        lambda folder: (folder / "dlrl_state.json").unlink(),
    ],
    ids=["torn manifest", "no manifest", "cut file", "missing file"],
)
def test_a_version_that_is_not_whole_is_not_held(memory, damage):
    memory.write(commit(1), [], state(1))
    damage(folder_of(memory, "id1"))
    assert memory.held() == {}


def test_a_changed_byte_is_found_and_named(memory):
    memory.write(commit(1), [], state(1))
    version = memory.held()["id1"]
    assert version.damage() is None
    with (version.folder / "dlrl_state.bytes").open("r+b") as file:
        file.seek(100)
        file.write(b"\x01")
    assert f"'{version.folder / 'dlrl_state.bytes'}' is damaged" in version.damage()


def test_a_published_version_is_never_replaced(memory):
    memory.write(commit(1), [], state(1))
    root = Path(memory.place())
    part = new_part(root, commit(1))
    (part / "mine").write_text("another's")
    publish(part, commit(1), [])
    assert_is(saved_state(folder_of(memory, "id1")), 1)
    assert not part.exists()


def test_a_version_that_is_received_waits_for_one_that_this_process_writes(memory, run_id, tmp_path, monkeypatch):
    """Else it would take the part that is being written for one that was left over."""
    pieces, gate = [Piece("mine", 0, 4, xxhash.xxh3_64(b"mine").hexdigest())], threading.Event()
    writing = threading.Thread(target=memory.write, args=(commit(2), ["id1"], gated(state(2), gate)))
    writing.start()
    wait_until(lambda: list(Path(memory.place()).glob("part-*")), "it writes", 10)
    receiving = threading.Thread(
        target=memory.receive,
        args=(commit(1), pieces, ["id2"], lambda wanted: wanted[0][1].__setitem__(slice(4), b"mine")),
    )
    receiving.start()
    receiving.join(0.2)
    assert receiving.is_alive()
    gate.set()
    for thread in (writing, receiving):
        thread.join(10)
    assert sorted(memory.held()) == ["id1", "id2"]
    assert all(version.damage() is None for version in memory.held().values())


# ---- room


def test_where_memory_is_too_small_the_disk_is_used_and_that_is_said(tmp_path, monkeypatch, run_id, capfd):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    for module in (state_memory, run_memory):
        monkeypatch.setattr(module, "memory_roots", lambda: [small, large])
    usage = state_memory.shutil.disk_usage
    monkeypatch.setattr(
        state_memory.shutil, "disk_usage", lambda path: usage(path)._replace(free=1000 if path == small else 10**9)
    )
    memory = StateMemory(run_id=run_id, workload="actor-0")
    memory.write(commit(1), [], state(1))
    assert folder_of(memory, "id1").is_relative_to(large)
    assert f"'{small}' has 0.00 GB free" in capfd.readouterr().out


def test_where_there_is_no_room_at_all_the_error_says_how_much_is_needed(tmp_path, monkeypatch, run_id):
    usage = state_memory.shutil.disk_usage
    monkeypatch.setattr(state_memory.shutil, "disk_usage", lambda path: usage(path)._replace(free=10**6))
    (tmp_path / "memory").mkdir()
    memory = StateMemory(run_id=run_id, workload="actor-0")
    with pytest.raises(OSError, match="two versions of this state need 0.02 GB; .* set DLRL_MEMORY"):
        memory.write(commit(1), [], state(1, 10**6))
    monkeypatch.undo()


# ---- whose folders they are


def test_every_level_of_the_folder_is_the_users_alone(memory, memory_folder):
    memory.write(commit(1), [], state(1))
    folder = folder_of(memory, "id1")
    while folder != memory_folder:
        assert folder.stat().st_mode & 0o077 == 0, folder
        folder = folder.parent


@pytest.mark.parametrize("foreign", ["open", "link", "file"])
def test_a_folder_that_others_could_write_to_is_refused(memory, memory_folder, tmp_path, foreign):
    place = memory_folder / f"dlrl-{os.getuid()}"
    memory_folder.mkdir()
    if foreign == "open":
        place.mkdir()
        place.chmod(0o755)
    elif foreign == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.touch()
    with pytest.raises(DlrlError, match=f"'{place}' is no folder of this user alone"):
        memory.write(commit(1), [], state(1))
    assert memory.held() == {}


def test_what_another_user_put_there_is_never_read(memory, memory_folder):
    memory.write(commit(1), [], state(1))
    (memory_folder / f"dlrl-{os.getuid()}").chmod(0o777)
    assert memory.held() == {}


def test_a_folder_that_is_right_is_used_as_it_is(tmp_path):
    assert own_folder(tmp_path / "a" / "b", below=tmp_path) == own_folder(tmp_path / "a" / "b", below=tmp_path)


# ---- the end of a run


def test_a_run_leaves_nothing_in_memory(memory, memory_folder, run_id):
    memory.write(commit(1), [], state(1))
    assert left_in_memory(run_id) == run_folders(run_id)
    forget_run(run_id)
    assert left_in_memory(run_id) == []
    assert list(memory_folder.iterdir()) == []


def test_what_a_process_that_was_killed_had_not_yet_removed_is_removed_by_the_next(memory, run_id):
    memory.write(commit(1), [], state(1))
    [folder] = run_folders(run_id)
    folder.rename(folder.with_name(f"{run_id}-gone"))
    assert len(left_in_memory(run_id)) == 1
    forget_run(run_id)
    assert left_in_memory(run_id) == []


def test_a_run_is_dead_when_no_process_holds_it_and_its_cluster_is_gone(memory, run_id):
    memory.write(commit(1), [], state(1))
    other, listening = f"dead-{uuid.uuid4().hex}", socket.create_server(("127.0.0.1", 0))
    cluster = f"127.0.0.1:{listening.getsockname()[1]}"
    in_other_process(
        "from state_samples import commit, state\n"
        "from dlrl_state.state_memory import StateMemory\n"
        f"StateMemory(run_id={other!r}, workload='actor-0', cluster={cluster!r}).write(commit(1), [], state(1))\n"
    )
    assert dead_runs() == []
    listening.close()
    assert sweep() == run_folders(other)
    assert left_in_memory(other) == []
    assert list(memory.held()) == ["id1"]


def test_a_process_that_only_looks_at_what_a_dead_one_has_written_keeps_it(run_id):
    """As a rank does that is restarted: until its first commit it writes nothing."""
    in_other_process(
        "from state_samples import commit, state\n"
        "from dlrl_state.state_memory import StateMemory\n"
        f"StateMemory(run_id={run_id!r}, workload='actor-0', cluster='127.0.0.1:1').write(commit(1), [], state(1))\n"
    )
    assert dead_runs() == run_folders(run_id)
    restarted = StateMemory(run_id=run_id, workload="actor-0")
    assert list(restarted.held()) == ["id1"]
    assert dead_runs() == []


def test_a_run_that_nothing_has_touched_for_a_day_is_dead(memory_folder):
    folder = memory_folder / f"dlrl-{os.getuid()}" / "old"
    folder.mkdir(parents=True)
    assert dead_runs() == []
    os.utime(folder, (0, 0))
    assert dead_runs() == [folder]


def test_a_manifest_is_plain_json(memory):
    memory.write(commit(1), [], state(1))
    told = json.loads((folder_of(memory, "id1") / "dlrl_commit.json").read_text())
    assert told["commit"]["progress"] == {"seen": 1}
    assert published(Path(memory.place()))["id1"].size == sum(piece["size"] for piece in told["pieces"])
