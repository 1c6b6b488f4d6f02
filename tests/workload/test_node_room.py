"""The memory of a node: own versions come before copies for other nodes, and what nobody needs goes. Without Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from state_samples import assert_is, commit, state
from test_small_disks import WORDS, small  # noqa: F401 - a fixture

from dlrl_core.workload.state_keeper import KeeperRequest
from dlrl_state import run_memory, state_memory
from dlrl_state.keeper import NodeMemoryKeeper
from dlrl_state.state_memory import StateMemory, saved_state


@pytest.fixture
def run_id() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def node(small, tmp_path, monkeypatch) -> Path:  # noqa: F811
    """A machine with 64 MB of memory and a disk; returns its memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    for module in (state_memory, run_memory):
        monkeypatch.setattr(module, "memory_roots", lambda: [small, disk])
    return small


@pytest.fixture
def elsewhere(tmp_path, run_id) -> Iterator[subprocess.Popen[str]]:
    """A process on another machine that writes a version of `actor-9` when it is told its number and size."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from state_samples import commit, state\n"
        "from dlrl_state.state_memory import StateMemory\n"
        f"memory = StateMemory(run_id={run_id!r}, workload='actor-9')\n"
        "for line in sys.stdin:\n"
        "    number, size = map(int, line.split())\n"
        "    memory.write(commit(number), [f'id{number - 1}'], state(number, size))\n"
        "    print(memory.held()[f'id{number}'].folder, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DLRL_MEMORY": str(tmp_path / "elsewhere")},
    ) as process:
        yield process
        process.stdin.close()


class Holder:
    """Holds copies of the versions of `actor-9` on this machine."""

    def __init__(self, run_id: str, elsewhere: subprocess.Popen[str]) -> None:
        self.memory = StateMemory(run_id=run_id, workload="actor-9", is_for_other=True)
        self._elsewhere = elsewhere

    def copy(self, number: int, megabytes: int, keep: Collection[str] = (), *, is_damaged: bool = False) -> None:
        from dlrl_state.version_folder import read_version

        self._elsewhere.stdin.write(f"{number} {megabytes * WORDS}\n")
        self._elsewhere.stdin.flush()
        version = read_version(Path(self._elsewhere.stdout.readline().strip()))
        assert version is not None

        def fill(wanted) -> None:
            for piece, view in wanted:
                with (version.folder / piece.file).open("rb") as file:
                    file.seek(piece.start)
                    file.readinto(view)
                if is_damaged and len(view):
                    view[0] ^= 1

        self.memory.receive(version.commit, version.pieces, keep, fill)


@pytest.fixture
def holder(node, run_id, elsewhere) -> Holder:
    return Holder(run_id, elsewhere)


@pytest.fixture
def rank(node, run_id) -> StateMemory:
    """A rank of this machine."""
    return StateMemory(run_id=run_id, workload="actor-0")


def test_a_copy_that_came_first_gives_way_to_the_first_version_of_a_rank_and_its_memory_is_free(holder, rank, node):
    holder.copy(1, 30)  # its process still has it mapped
    rank.write(commit(1), [], state(1, 25 * WORDS))
    assert rank.held()["id1"].folder.is_relative_to(node), "not on the disk"
    assert holder.memory.held() == {}
    assert rank.take_pushed() == {"actor-9"}
    assert rank.take_pushed() == frozenset(), "told once"
    rank.write(commit(2), ["id1"], state(2, 25 * WORDS))
    assert_is(saved_state(rank.held()["id2"].folder), 2, 25 * WORDS)


def test_no_more_copies_go_than_the_rank_needs_and_those_that_count_go_last(holder, rank, node):
    holder.copy(1, 20)
    holder.memory.set_counted("id1")
    holder.copy(2, 20, ["id1"])
    rank.write(commit(2), [], state(2, 20 * WORDS))
    assert list(holder.memory.held()) == ["id1"]
    assert rank.held()["id2"].folder.is_relative_to(node)


def test_a_copy_that_came_between_two_versions_of_a_rank_gives_way_to_the_second(holder, rank, node, monkeypatch):
    rank.write(commit(1), [], state(1, 20 * WORDS))
    monkeypatch.setattr(state_memory, "check_for_copy", lambda *_: None)  # it asked while the first was being written
    holder.copy(1, 16)
    holder.copy(2, 16, ["id1"])
    rank.write(commit(2), ["id1"], state(2, 20 * WORDS))
    assert sorted(rank.held()) == ["id1", "id2"]
    assert rank.held()["id2"].folder.is_relative_to(node)
    assert rank.take_pushed() == {"actor-9"}


def test_a_rank_that_lost_a_race_for_the_last_memory_pushes_the_copy_out(holder, rank, node, monkeypatch):
    """The copy comes after the rank has looked: the file system itself says that it is full."""
    rank.write(commit(1), [], state(1, 20 * WORDS))
    holder.copy(1, 16)
    free_at, is_late = state_memory.free_at, []

    def raced(place: Path) -> int:
        free = free_at(place)
        if not is_late:
            is_late.append(True)
            monkeypatch.setattr(state_memory, "check_for_copy", lambda *_: None)
            holder.copy(2, 16, ["id1"])
        return free

    monkeypatch.setattr(state_memory, "free_at", raced)
    rank.write(commit(2), ["id1"], state(2, 20 * WORDS))
    assert is_late and rank.held()["id2"].folder.is_relative_to(node)
    assert rank.take_pushed() == {"actor-9"}


def test_a_copy_that_a_way_back_has_found_is_never_pushed_out(holder, node, run_id, tmp_path):
    holder.copy(1, 30)
    rank = NodeMemoryKeeper(KeeperRequest(run_id=run_id, workload="actor-0"))
    assert list(rank.held_for(["actor-9"])["actor-9"].commits) == ["id1"]
    rank._memory.write(commit(2), [], state(2, 20 * WORDS))
    assert rank._memory.held()["id2"].folder.is_relative_to(tmp_path / "disk")
    assert list(holder.memory.held()) == ["id1"]


def test_what_a_rank_that_was_restarted_here_went_back_to_is_never_pushed_out(holder, node, run_id, tmp_path):
    holder.copy(1, 30)
    moved_here = NodeMemoryKeeper(KeeperRequest(run_id=run_id, workload="actor-9"))
    assert list(moved_here.held().commits) == ["id1"]
    other = StateMemory(run_id=run_id, workload="actor-0")
    other.write(commit(2), [], state(2, 20 * WORDS))
    assert list(moved_here.held().commits) == ["id1"]


def test_copies_stay_where_pushing_them_out_would_not_be_enough(holder, rank, tmp_path):
    holder.copy(1, 20)
    rank.write(commit(1), [], state(1, 40 * WORDS))
    assert rank.held()["id1"].folder.is_relative_to(tmp_path / "disk")
    assert list(holder.memory.held()) == ["id1"]
    assert rank.take_pushed() == frozenset()


def test_a_copy_is_refused_where_a_rank_needs_the_room_for_its_second_version(holder, rank):
    rank.write(commit(1), [], state(1, 20 * WORDS))
    with pytest.raises(OSError, match=r"it needs 0.03 GB, and the ranks of that node 0.02 GB"):
        holder.copy(1, 30)
    holder.copy(2, 15)


def test_ranks_that_each_find_room_but_not_together_go_on_on_the_disk(node, run_id, tmp_path):
    first, second = (StateMemory(run_id=run_id, workload=f"actor-{rank}") for rank in (0, 1))
    for number in (1, 2):
        for memory in (first, second):
            keep = [f"id{number - 1}"] if number > 1 else []
            memory.write(commit(number), keep, state(number, 20 * WORDS))
    assert sorted(second.held()) == ["id1", "id2"]
    assert second.held()["id1"].folder.is_relative_to(node)
    assert second.held()["id2"].folder.is_relative_to(tmp_path / "disk")
    assert_is(saved_state(second.held()["id2"].folder), 2, 20 * WORDS)


def test_copies_that_fail_leave_memory_that_the_next_one_is_written_over(holder, node):
    for number in range(1, 5):
        with pytest.raises(OSError, match="is not what was written"):
            holder.copy(number, 25, is_damaged=True)
    assert holder.memory.held() == {}
    holder.copy(5, 25)
    used = sum(path.stat().st_blocks * 512 for path in node.rglob("*") if path.is_file())
    assert used < 26 * 10**6


# ---- what workloads that moved to another node have left


def test_what_a_workload_left_when_it_moved_goes_when_a_newer_commit_counts(holder, rank, node):
    holder.copy(1, 5)
    rank.write(commit(1), [], state(1))
    rank.write(commit(2), ["id1"], state(2))
    assert list(holder.memory.held()) == ["id1"], "a way back may lead there"
    rank.write(commit(3), ["id2"], state(3))
    assert holder.memory.held() == {}
    large = [path for path in node.rglob("*") if path.is_file() and path.stat().st_size > 10**6]
    assert large == []


def test_copies_that_are_still_made_are_left_to_the_next_one(holder, rank):
    holder.copy(1, 5)
    holder.copy(2, 5, ["id1"])
    rank.write(commit(2), [], state(2))
    rank.write(commit(3), ["id2"], state(3))
    assert sorted(holder.memory.held()) == ["id1", "id2"], "the first one is written over"


def test_a_version_of_another_process_that_lives_is_left(rank, node, run_id):
    other = StateMemory(run_id=run_id, workload="actor-1")
    other.write(commit(1), [], state(1))
    rank.write(commit(2), [], state(2))
    rank.write(commit(3), ["id2"], state(3))
    assert list(other.held()) == ["id1"]
