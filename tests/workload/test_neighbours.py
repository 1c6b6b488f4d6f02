"""Copies of commits in the memory of another node: who holds them, and that they come whole or not at all. Without Ray."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_samples import assert_is, commit, state

from dlrl_core.errors import DlrlError
from dlrl_core.trainer.neighbours import Neighbours, neighbours_of
from dlrl_core.trainer.workload_directory import WorkloadDirectory, WorkloadHandle
from dlrl_core.workload.state_keeper import KeeperRequest, Neighbour
from dlrl_state import neighbour_copies
from dlrl_state.keeper import NodeMemoryKeeper
from dlrl_state.neighbour_copies import NeighbourCopies
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.transfer import Address, FileServer, connected
from dlrl_state.version_folder import Piece

# ---- who holds them


def nodes_of(**nodes: list[str]) -> dict[str, str]:
    return {workload: node for node, workloads in nodes.items() for workload in workloads}


def test_each_rank_has_a_neighbour_on_the_next_node_and_holders_share_the_work():
    nodes = nodes_of(a=["actor-0", "actor-1"], b=["rollout-0", "rollout-1"], c=["critic-0"])
    assert neighbours_of(["actor-0", "actor-1", "critic-0"], nodes, {}, {}) == {
        "actor-0": "rollout-0",
        "actor-1": "rollout-1",
        "critic-0": "actor-0",
    }


def test_a_neighbour_is_in_another_failure_domain_where_there_is_one():
    nodes = nodes_of(a=["actor-0"], b=["actor-1"], c=["actor-2"], d=["actor-3"])
    racks = {"a": "1", "b": "1", "c": "2", "d": "2"}
    chosen = neighbours_of([f"actor-{rank}" for rank in range(4)], nodes, racks, {})
    assert all(racks[nodes[holder]] != racks[nodes[name]] for name, holder in chosen.items())
    one_rack = dict.fromkeys("abcd", "1")
    assert neighbours_of(["actor-0"], nodes, one_rack, {}) == {"actor-0": "actor-1"}


def test_a_choice_stays_while_it_is_right():
    nodes = nodes_of(a=["actor-0"], b=["rollout-0", "rollout-1"], c=["rollout-2"])
    assert neighbours_of(["actor-0"], nodes, {}, {"actor-0": "rollout-2"}) == {"actor-0": "rollout-2"}
    assert neighbours_of(["actor-0"], nodes, {}, {"actor-0": "actor-0"}) == {"actor-0": "rollout-0"}


def test_with_failure_domains_no_node_holds_the_copies_of_more_nodes_than_it_must():
    nodes = {f"actor-{rank}": f"n{rank // 4}" for rank in range(32)}
    racks = {f"n{number}": str(number // 4) for number in range(8)}
    chosen = neighbours_of(list(nodes), nodes, racks, {})
    held = Counter(nodes[holder] for holder in chosen.values())
    assert held == {f"n{number}": 4 for number in range(8)}
    assert all(racks[nodes[name]] != racks[nodes[holder]] for name, holder in chosen.items())


def test_a_neighbour_that_came_back_on_another_node_has_no_copy():
    handles = [
        WorkloadHandle(name=name, role=name[:-2], rank=0, ray_actor=None, node_id=node)
        for name, node in (("actor-0", "a"), ("rollout-0", "b"))
    ]
    directory = WorkloadDirectory(master=None, workloads=handles)
    neighbours = Neighbours(directory, handles[:1], is_on=True, domain_label=None)
    assert neighbours.of("actor-0").name == "rollout-0"
    neighbours.heard({"actor-0": None}, is_last=True, is_waited_for=True)
    assert neighbours.without_copy() == []
    handles[1].node_id = "c"
    directory.replaced.append(handles[1])
    assert neighbours.without_copy() == ["actor-0"]


def test_a_job_on_one_node_has_no_neighbours():
    assert neighbours_of(["actor-0"], {"actor-0": "a", "rollout-0": "a"}, {}, {}) == {}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_a_neighbour_is_never_on_the_same_node(places, racks):
    nodes = {f"actor-{rank}": str(place) for rank, place in enumerate(places)}
    domains = {str(node): str(rack) for node, rack in enumerate(racks)}
    chosen = neighbours_of(list(nodes), nodes, domains, {})
    assert len(chosen) == (len(nodes) if len(set(places)) > 1 else 0)
    assert all(nodes[name] != nodes[holder] for name, holder in chosen.items())


# ---- copying


class Machine:
    """A machine with a memory of its own, and one process on it that keeps the state of `actor-0`, or a copy of it."""

    def __init__(self, folder: Path, run_id: str, workload: str, monkeypatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._use()
        self.memory = StateMemory(run_id=run_id, workload=workload)
        self.copies = NeighbourCopies(self.memory, KeeperRequest(run_id=run_id, workload=workload))

    def _use(self) -> None:
        self._monkeypatch.setenv("DLRL_MEMORY", str(self.folder))

    def __enter__(self) -> Machine:
        self._use()
        return self

    def __exit__(self, *_) -> None: ...


@pytest.fixture
def run_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def machines(tmp_path, monkeypatch, run_id) -> tuple[Machine, Machine]:
    monkeypatch.setattr(neighbour_copies.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return (
        Machine(tmp_path / "a", run_id, "actor-0", monkeypatch),
        Machine(tmp_path / "b", run_id, "rollout-0", monkeypatch),
    )


def give(owner: Machine, holder: Machine, id_: str, keep: list[str]) -> None:
    """As the owner's keeper does through Ray. The server looks files up on its own machine: it is told where before."""
    with owner:
        source = owner.copies.source_of("actor-0", id_)
    with holder:
        holder.copies.pull("actor-0", id_, keep, source)


def copy_of(holder: Machine, id_: str):
    with holder:
        return holder.copies.memory_of("actor-0").held()[id_]


def test_a_copy_has_the_same_bytes_and_a_rank_that_is_restarted_there_finds_it_as_its_own(
    machines, run_id, monkeypatch
):
    owner, holder = machines
    with owner:
        owner.memory.write(commit(1), [], state(1))
    give(owner, holder, "id1", [])
    with holder:
        found = StateMemory(run_id=run_id, workload="actor-0").held()["id1"]
        assert found.damage() is None
        assert_is(saved_state(found.folder), 1)


def test_the_holder_has_two_versions_at_most_and_keeps_the_one_that_counts(machines):
    owner, holder = machines
    for number in range(1, 6):
        keep = [f"id{number - 1}"] if number > 1 else []
        with owner:
            owner.memory.write(commit(number), keep, state(number))
        give(owner, holder, f"id{number}", keep)
        with holder:
            assert sorted(holder.copies.memory_of("actor-0").held()) == sorted([*keep, f"id{number}"])
    assert_is(saved_state(copy_of(holder, "id5").folder), 5)


def test_what_has_not_changed_is_not_sent_again(machines, monkeypatch):
    owner, holder = machines
    frozen, trained = np.ones(10**6), np.zeros(1000)
    sent: list[int] = []
    read_into = neighbour_copies.connected

    def counting(address: Address):
        reader = read_into(address)
        return _Counting(reader, sent)

    monkeypatch.setattr(neighbour_copies, "connected", counting)
    from dlrl_core.workload.captured_state import capture_arrays

    for number in (1, 2):
        trained += 1
        with owner:
            owner.memory.write(commit(number), ["id1"], capture_arrays({"frozen": frozen, "trained": trained}))
        give(owner, holder, f"id{number}", ["id1"])
    assert sum(size for size in sent if size == frozen.nbytes) == frozen.nbytes, "the frozen weights went once"
    assert copy_of(holder, "id2").damage() is None


class _Counting:
    """Counts the bytes that are asked for."""

    def __init__(self, connection, sent: list[int]) -> None:
        self._connection = connection
        self._sent = sent

    def __enter__(self):
        self._reader = self._connection.__enter__()
        return self

    def __exit__(self, *told) -> None:
        self._connection.__exit__(*told)

    def read_into(self, what, start, target) -> None:
        self._sent.append(len(target))
        self._reader.read_into(what, start, target)


def test_a_copy_of_bytes_that_changed_on_the_way_is_refused_and_nothing_is_left(machines):
    owner, holder = machines
    with owner:
        owner.memory.write(commit(1), [], state(1))
        source = owner.copies.source_of("actor-0", "id1")
        version = owner.memory.held()["id1"]
    with (version.folder / "dlrl_state.bytes").open("r+b") as file:
        file.write(b"damage")
    with holder:
        with pytest.raises(DlrlError, match="is not what was written"):
            holder.copies.pull("actor-0", "id1", [], source)
        assert holder.copies.memory_of("actor-0").held() == {}
        assert not list(holder.folder.rglob("part-*"))


def test_a_source_that_dies_on_the_way_is_an_error_and_nothing_is_left(machines, tmp_path, run_id):
    owner, holder = machines
    code = (
        "import sys, time, numpy as np, ray\n"
        "ray.util.get_node_ip_address = lambda: '127.0.0.1'\n"
        "from dlrl_core.workload.captured_state import capture_arrays\n"
        "from dlrl_core.workload.state_keeper import KeeperRequest\n"
        "from dlrl_state import transfer\n"
        "from dlrl_state.neighbour_copies import NeighbourCopies\n"
        "from dlrl_state.state_memory import StateMemory\n"
        "from state_samples import commit\n"
        "import os, pickle\n"
        f"memory = StateMemory(run_id={run_id!r}, workload='actor-0')\n"
        "memory.write(commit(1), [], capture_arrays({'large': np.ones(10**7)}))\n"
        f"copies = NeighbourCopies(memory, KeeperRequest(run_id={run_id!r}, workload='actor-0'))\n"
        "find = copies._file\n"
        "copies._file = lambda what: os.kill(os.getpid(), 9)\n"  # it dies when it is asked for the first byte
        "sys.stdout.buffer.write(pickle.dumps(copies.source_of('actor-0', 'id1')) + b'END')\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    here = str(Path(__file__).parent)
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{code}"]
    import os
    import pickle

    with subprocess.Popen(
        words, stdout=subprocess.PIPE, env={**os.environ, "DLRL_MEMORY": str(owner.folder)}
    ) as process:
        told = b""
        while not told.endswith(b"END"):
            told += process.stdout.read1()
        with holder, pytest.raises(DlrlError):
            holder.copies.pull("actor-0", "id1", [], pickle.loads(told.removesuffix(b"END")))
        assert process.wait(10) == -9
    with holder:
        assert holder.copies.memory_of("actor-0").held() == {}
    large = [path.name for path in holder.folder.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert large == ["pool"], "memory that the next copy is written over"


@pytest.mark.parametrize("file", ["/tmp/outside", "../../outside"])
def test_a_file_outside_of_its_version_is_never_written(machines, file):
    _, holder = machines
    piece = Piece(file, 0, 4, "0")
    with holder, pytest.raises(OSError, match="a version has no file"):
        holder.memory.receive(commit(1), [piece], [], lambda wanted: None)


def test_a_copy_that_is_torn_is_replaced_by_the_next_one(machines):
    owner, holder = machines
    with owner:
        owner.memory.write(commit(1), [], state(1))
    give(owner, holder, "id1", [])
    (copy_of(holder, "id1").folder / "dlrl_state.bytes").unlink()
    give(owner, holder, "id1", [])
    assert copy_of(holder, "id1").damage() is None


def test_a_commit_is_settled_whatever_its_neighbour_does(tmp_path, monkeypatch, run_id):
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path))
    keeper = NodeMemoryKeeper(KeeperRequest(run_id=run_id, workload="actor-0"))

    class Workload:
        def capture_state(self):
            return state(1)

    neighbour = Neighbour(name="rollout-0", ray_actor=object())  # no process at all
    keeper.begin(commit(1), [], Workload(), neighbour)
    outcome = keeper.outcome("id1")
    assert outcome.error is None and outcome.neighbour_error is not None


def test_without_the_token_nothing_is_sent(tmp_path):
    (tmp_path / "secret").write_bytes(b"weights")
    server = FileServer("127.0.0.1", lambda what: tmp_path / what)
    try:
        target = memoryview(bytearray(7))
        with connected(server.address) as reader:
            reader.read_into("secret", 0, target)
        assert bytes(target) == b"weights"
        wrong = Address(host=server.address.host, port=server.address.port, token=bytes(32))
        with pytest.raises(OSError), connected(wrong) as reader:
            reader.read_into("secret", 0, memoryview(bytearray(7)))
        with socket.create_connection((server.address.host, server.address.port)) as raw:
            raw.sendall(b"x" * 32)
            raw.settimeout(5)
            assert raw.recv(1) == b""
    finally:
        server.close()
    assert "token" not in repr(server.address)


def test_only_files_of_the_version_are_sent(machines):
    owner, _ = machines
    with owner:
        owner.memory.write(commit(1), [], state(1))
        source = owner.copies.source_of("actor-0", "id1")
    with pytest.raises(OSError), connected(source.address) as reader:
        reader.read_into(["actor-0", "id1", "../../../../../../etc/passwd"], 0, memoryview(bytearray(4)))
