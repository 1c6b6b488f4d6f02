"""What ranks hold alike: once a node in memory, whichever of them copies it, whoever dies, and wherever it goes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from checks import wait_until
from rank_processes import ALIKE, ALIKE_BYTES, OWN_BYTES, RankProcess
from state_samples import commit

from dlrl_state import alike_content
from dlrl_state.alike_content import AlikeContent
from dlrl_state.transfer import connected

Start = Callable[..., list[RankProcess]]
RANKS = 4


@pytest.fixture
def run_id() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def start(tmp_path, run_id) -> Iterator[Start]:
    """Start ranks with these numbers; those that live are killed in the end."""
    started: list[RankProcess] = []

    def ranks(numbers: Sequence[int] = range(RANKS), *, node: str = "node", **more: Any) -> list[RankProcess]:
        new = [RankProcess(number, run_id=run_id, memory=tmp_path / node, **more) for number in numbers]
        started.extend(new)
        return new

    yield ranks
    for rank in started:
        rank.kill()


def on_all(ranks: Sequence[RankProcess], method: str, *args: Any) -> list[Any]:
    for rank in ranks:
        rank.start(method, *args)
    return [rank.answer() for rank in ranks]


def committed(ranks: Sequence[RankProcess], version: int) -> list[str]:
    """Train a step and commit it, on all ranks at once; returns what each rank then holds, as a digest."""
    trained = on_all(ranks, "train", version)
    keep = [f"id{version - 1}"] if version > 1 else []
    assert on_all(ranks, "commit", version, keep) == [None] * len(ranks)
    return trained


def bytes_in(folder: Path) -> int:
    """What the files below a folder take, each once however many names it has."""
    sizes = {}
    for path in [Path(place) / name for place, _, names in os.walk(folder) for name in names]:
        with contextlib.suppress(FileNotFoundError):
            seen = path.stat()
            if seen.st_size > 16 * 1024:  # no manifests
                sizes[seen.st_ino] = seen.st_blocks * 512
    return sum(sizes.values())


class Peak:
    """The most bytes that were in a folder at a time, looked at all the time."""

    def __init__(self, folder: Path) -> None:
        self.most = 0
        self._folder = folder
        self._is_over = threading.Event()

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.is_set():
            self.most = max(self.most, bytes_in(self._folder))


def claimed(folder: Path, version: int) -> list[str]:
    """The ranks that copy a part of a commit, or have: one for each part."""
    try:
        [state] = folder.rglob(f"alike-*/{version}-id{version}/state.json")
        return [one["workload"] for one in json.loads(state.read_text())["claims"] if one]
    except (ValueError, FileNotFoundError):
        return []


def about(size: int) -> Any:
    return pytest.approx(size, rel=0.01)


def test_four_ranks_keep_it_once_and_each_gets_it_back(start, tmp_path):
    ranks = start()
    trained = committed(ranks, 1)
    assert bytes_in(tmp_path) == about(ALIKE_BYTES + RANKS * OWN_BYTES)
    assert len(set(trained)) == RANKS, "each has a part of its own"
    on_all(ranks, "train", 9)
    assert on_all(ranks, "load", 1) == trained
    for rank in ranks:
        rank.kill()
    assert on_all(start(), "load", 1) == trained, "in new processes"


def test_the_ranks_divide_the_copying(start, tmp_path):
    ranks = start()
    on_all(ranks, "stand_still_at", "embedding")
    on_all(ranks, "begin", 1, [])
    wait_until(lambda: len(claimed(tmp_path, 1)) == RANKS, "each rank has claimed a part and stands still at it", 30)
    on_all(ranks, "go_on")
    assert on_all(ranks, "outcome", 1) == [None] * RANKS
    assert set(claimed(tmp_path, 1)) == {rank.name for rank in ranks}


def test_two_versions_lie_in_memory_at_most_and_their_files_are_written_over(start, tmp_path):
    ranks = start()
    files = []
    with Peak(tmp_path) as peak:
        for version in range(1, 6):
            trained = committed(ranks, version)
            [file] = tmp_path.rglob(f"alike-*/{version}-id{version}/content")
            files.append(file.stat().st_ino)
    assert peak.most <= 1.01 * 2 * (ALIKE_BYTES + RANKS * OWN_BYTES)
    assert len(set(files)) == 2
    assert on_all(ranks, "held") == [["id4", "id5"]] * RANKS
    assert on_all(ranks, "load", 5) == trained


def test_a_rank_that_begins_late_finds_what_it_needs_and_no_third_version_is_made(start, tmp_path):
    ranks = start()
    for version in (1, 2):
        trained = committed(ranks, version)
    on_all(ranks, "train", 3)
    with Peak(tmp_path) as peak:
        on_all(ranks[:3], "begin", 3, ["id2"])
        assert ranks[3].call("load", 2) == trained[3]
        assert ranks[3].call("held") == ["id1", "id2"]
        late = ranks[3].call("train", 3)
        assert ranks[3].call("commit", 3, ["id2"]) is None
        assert on_all(ranks[:3], "outcome", 3) == [None] * 3
    assert peak.most <= 1.01 * 2 * (ALIKE_BYTES + RANKS * OWN_BYTES)
    assert ranks[3].call("load", 3) == late


def test_a_rank_killed_while_it_copies_fails_the_commit_by_name_and_the_next_one_works(start, tmp_path):
    ranks = start()
    trained = committed(ranks, 1)
    on_all(ranks, "train", 2)
    ranks[1].call("stand_still_at", "embedding")
    ranks[1].call("begin", 2, ["id1"])
    wait_until(lambda: claimed(tmp_path, 2) == ["actor-1"], "it has claimed a part and stands still at it", 30)
    others = [ranks[0], *ranks[2:]]
    on_all(others, "begin", 2, ["id1"])
    on_all(others, "wait")
    ranks[1].kill()
    for error in on_all(others, "outcome", 2):
        assert "'actor-1' died while it copied its part of what ranks of this node hold alike" in error
    ranks[1:2] = start([1])
    assert on_all(ranks, "load", 1) == trained
    again = on_all(ranks, "train", 3)
    assert on_all(ranks, "commit", 3, ["id1"]) == [None] * RANKS
    assert on_all(ranks, "load", 3) == again
    assert bytes_in(tmp_path) == about(2 * (ALIKE_BYTES + RANKS * OWN_BYTES))


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_said_to_be_alike_and_is_not_is_refused_by_name(start, name):
    ranks = start()
    on_all(ranks, "train", 1)
    ranks[2].call("change", name)
    errors = [one for one in on_all(ranks, "commit", 1, []) if one is not None]
    assert errors, "whichever rank copied that part, another one has seen other bytes"
    for error in errors:
        assert f"in buffer '{name}', which it says they hold alike ('model.{name}')" in error
        assert "'actor-2'" in error
    on_all(ranks, "train", 2)
    assert on_all(ranks, "commit", 2, []) == [None] * RANKS


def test_a_damaged_byte_is_found_by_each_rank(start, tmp_path):
    ranks = start()
    committed(ranks, 1)
    [file] = tmp_path.rglob("alike-*/1-id1/content")
    with file.open("r+b") as content:
        content.seek(ALIKE_BYTES // 2)
        content.write(bytes([content.read(1)[0] ^ 1]))
    for damage in on_all(ranks, "damage", "id1"):
        assert "is damaged" in damage
    assert on_all(ranks, "held") == [[]] * RANKS


def test_a_copy_on_durable_storage_is_whole_by_itself(start, tmp_path):
    ranks = start(durable=tmp_path / "durable")
    trained = committed(ranks, 1)
    on_all(ranks, "make_durable", "id1")
    for rank in ranks:
        rank.kill()
    shutil.rmtree(tmp_path / "node")
    assert on_all(start(durable=tmp_path / "durable"), "load", 1) == trained


# ---- on another node


def pulled(holder: RankProcess, ranks: Sequence[RankProcess], version: int) -> None:
    keep = [f"id{version - 1}"] if version > 1 else []
    for rank in ranks:
        source = rank.call("source_of", rank.name, f"id{version}")
        holder.call("pull", rank.name, f"id{version}", keep, source)


def test_a_neighbour_holds_it_once_too_and_a_lost_node_gets_it_back(start, tmp_path):
    ranks, [holder] = start(), start([9], node="other")
    with Peak(tmp_path / "other") as peak:
        for version in range(1, 5):
            trained = committed(ranks, version)
            pulled(holder, ranks, version)
    assert peak.most <= 1.01 * 2 * (ALIKE_BYTES + RANKS * OWN_BYTES)
    for rank in ranks:
        rank.kill()
    shutil.rmtree(tmp_path / "node")
    ranks = start()
    for rank in ranks:
        rank.call("pull", rank.name, "id4", [], holder.call("source_of", rank.name, "id4"))
    assert bytes_in(tmp_path / "node") == about(ALIKE_BYTES + RANKS * OWN_BYTES)
    assert on_all(ranks, "load", 4) == trained


def test_a_neighbour_whose_own_ranks_hold_the_same_content_needs_no_second_copy(start, tmp_path):
    """Ranks 0 and 1 on one node, 2 and 3 on another: each node holds all four, and what is alike once."""
    here, there = start([0, 1]), start([2, 3], node="other")
    with Peak(tmp_path / "other") as peak:
        for version in range(1, 5):
            trained = committed([*here, *there], version)
            pulled(there[0], here, version)
            pulled(here[0], there, version)
    assert peak.most <= 1.01 * 2 * (ALIKE_BYTES + RANKS * OWN_BYTES)
    for rank in here:
        rank.kill()
    assert on_all(start([0, 1], node="other"), "load", 4) == trained[:2]


def test_a_process_killed_while_it_pulls_leaves_the_rest_to_the_next(start, tmp_path):
    ranks, holders = start([0]), start([8, 9], node="other")
    trained = committed(ranks, 1)
    source = ranks[0].call("source_of", "actor-0", "id1")
    holders[0].start("pull", "actor-0", "id1", [], source)
    wait_until(lambda: any((tmp_path / "other").rglob("state.json")), "it has begun", 30)
    holders[0].kill()
    holders[1].call("pull", "actor-0", "id1", [], source)
    ranks[0].kill()
    assert on_all(start([0], node="other"), "load", 1) == trained


def test_a_file_outside_of_a_version_is_not_sent(start, tmp_path):
    [rank] = start([0])
    committed([rank], 1)
    source = rank.call("source_of", "actor-0", "id1")
    [group] = (one.parent for one in tmp_path.rglob("alike-*/lock"))
    for file in (f"../../{group.name}/1-id1/content", "/etc/passwd", "../../lock"):
        with pytest.raises(ConnectionError), connected(source.address) as reader:
            reader.read_into(["actor-0", "id1", file], 0, memoryview(bytearray(1)))
    assert (group / "1-id1" / "content").stat().st_nlink == 2


# ---- a pull beside the ranks of its node, in one process


SPANS = {(0, 3 * 2**20): b"a", (3 * 2**20, 2**20): b"b"}


def content_at(folder: Path, workload: str, **more: Any) -> AlikeContent:
    return AlikeContent(folder, commit(1), workload, list(SPANS), lambda: None, **more)


def write_spans(wanted: Sequence[tuple[tuple[int, int], memoryview]]) -> list[str]:
    for span, view in wanted:
        view[:] = SPANS[span] * span[1]
    return [SPANS[span].decode() for span, _ in wanted]


@pytest.mark.parametrize("ends", ["fails", "is late"])
def test_a_pull_that_fails_or_is_late_leaves_the_commit_of_the_ranks_alone(tmp_path, ends):
    began, go_on, told = threading.Event(), threading.Event(), []

    def slow(wanted: Sequence[tuple[tuple[int, int], memoryview]]) -> list[str]:
        began.set()
        assert go_on.wait(30)
        for _, view in wanted:
            view[:] = b"?" * len(view)  # what came until then
        if ends == "fails":
            raise OSError("the connection was lost")
        return ["?" for _ in wanted]

    def pull() -> None:
        pulling = content_at(tmp_path, "actor-9", is_pulled=True)
        try:
            with pulling.joined():
                pulling.copy(slow)
                told.append({digest for digest, _ in pulling.digests().values()})
        except OSError as error:
            told.append(str(error))

    thread = threading.Thread(target=pull)
    thread.start()
    assert began.wait(30)
    (tmp_path / "part").mkdir()
    rank = content_at(tmp_path, "actor-0")
    with rank.joined():
        rank.copy(write_spans)
        found = rank.digests()  # does not wait for the pull, whose part it has copied itself
        assert found == {span: (word.decode(), "actor-0") for span, word in SPANS.items()}
        rank.link_to(tmp_path / "part")
    go_on.set()
    thread.join(30)
    assert told == (["the connection was lost"] if ends == "fails" else [{"a", "b"}])
    [linked] = (tmp_path / "part").iterdir()
    assert linked.read_bytes() == b"".join(word * size for (_, size), word in SPANS.items())


def test_a_rank_that_waits_for_others_reads_their_state_only_when_it_was_written(tmp_path, monkeypatch):
    began, go_on, reads, looks = threading.Event(), threading.Event(), [], threading.Semaphore(0)
    read = alike_content._read_state
    written = AlikeContent._written

    def slow(wanted: Sequence[tuple[tuple[int, int], memoryview]]) -> list[str]:
        began.set()
        assert go_on.wait(30)
        return write_spans(wanted)

    def copy() -> None:
        copying = content_at(tmp_path, "actor-1")
        with copying.joined():
            copying.copy(slow)

    def looked(content: AlikeContent) -> tuple[int, int]:
        looks.release()
        return written(content)

    thread = threading.Thread(target=copy)
    thread.start()
    assert began.wait(30)
    waiting = content_at(tmp_path, "actor-0")
    with waiting.joined():
        waiting.copy(write_spans)
        monkeypatch.setattr(alike_content, "_read_state", lambda folder: reads.append(folder) or read(folder))
        monkeypatch.setattr(AlikeContent, "_written", looked)

        def let_go() -> None:
            for _ in range(5):
                assert looks.acquire(timeout=30)
            assert len(reads) == 1
            go_on.set()

        watcher = threading.Thread(target=let_go)
        watcher.start()
        assert set(waiting.digests()) == set(SPANS)
        watcher.join(30)
    thread.join(30)
    assert go_on.is_set()
