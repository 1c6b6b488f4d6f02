"""The state of a workload from capture to restore: what waits for a copy, what does not, and what a failure leaves."""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
from checks import wait_until
from state_samples import commit, gated

from dlrl_core.workload.captured_state import arrays_of, capture_arrays
from dlrl_core.workload.state_keeper import KeeperRequest
from dlrl_state.keeper import NodeMemoryKeeper
from dlrl_state.local_storage import LocalStorage


class Arrays:
    """A workload with an array that is changed in place."""

    def __init__(self, value: int = 0) -> None:
        self.weights = np.full(100_000, value)
        self.gate = threading.Event()
        self.gate.set()

    def capture_state(self):
        return gated(capture_arrays({"weights": self.weights}), self.gate)

    def restore_state(self, saved):
        self.weights = arrays_of(saved)["weights"].copy()


class Files:
    """A workload that writes its state itself."""

    text = "first"

    def save_state(self, path):
        with open(f"{path}/mine", "w") as file:  # noqa: PTH123 - as a user may write it
            file.write(self.text)

    def load_state(self, path):
        with open(f"{path}/mine") as file:  # noqa: PTH123
            self.text = file.read()


@pytest.fixture
def committed(tmp_path, monkeypatch) -> NodeMemoryKeeper:
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))
    return NodeMemoryKeeper(
        KeeperRequest(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0", durable=str(tmp_path / "durable"))
    )


def test_a_copy_goes_on_behind_and_a_change_waits_for_it(committed):
    workload = Arrays(1)
    workload.gate.clear()
    committed.begin(commit(1), [], workload)
    assert not committed._copy.ended.is_set()
    assert committed.held().commits == {}
    threading.Timer(0.2, workload.gate.set).start()
    committed.wait()
    workload.weights[:] = 2
    outcome = committed.outcome("id1")
    assert (outcome.error, outcome.size) == (None, workload.weights.nbytes)
    assert outcome.waited_s > 0.1
    committed.load("id1", workload)
    assert (workload.weights == 1).all()


def test_a_change_later_than_the_copy_waits_for_nothing(committed):
    workload = Arrays(1)
    committed.begin(commit(1), [], workload)
    committed.outcome("id1")
    began = time.perf_counter()
    committed.wait()
    assert time.perf_counter() - began < 0.01
    assert committed.outcome("id1").waited_s == 0


def test_the_kernels_time_for_new_memory_is_not_counted_as_the_interpreters(committed, monkeypatch):
    fallocate = os.posix_fallocate

    def as_slow_as_for_gigabytes(*told):
        fallocate(*told)
        began = resource.getrusage(resource.RUSAGE_THREAD).ru_stime
        while resource.getrusage(resource.RUSAGE_THREAD).ru_stime - began < 0.3:
            os.urandom(2**22)

    monkeypatch.setattr(os, "posix_fallocate", as_slow_as_for_gigabytes)
    committed.begin(commit(1), [], Arrays(1))
    outcome = committed.outcome("id1")
    assert outcome.error is None
    assert outcome.cpu_s > 0.25
    assert outcome.interpreter_s < 0.15


def test_a_buffer_that_can_not_be_copied_is_an_outcome_and_no_version(committed):
    class Broken(Arrays):
        def capture_state(self):
            captured = super().capture_state()
            captured.buffers["weights"].copy_to = lambda target: 1 / 0
            return captured

    committed.begin(commit(1), [], Broken())
    outcome = committed.outcome("id1")
    assert outcome.error == "commit 1 could not be copied: ZeroDivisionError: division by zero"
    assert committed.held().commits == {}
    committed.begin(commit(2), [], Arrays(2))
    assert committed.outcome("id2").error is None


def test_files_of_a_workload_are_kept_and_loaded(committed):
    workload = Files()
    committed.begin(commit(1), [], workload)
    workload.text = "second"
    committed.load("id1", workload)
    assert workload.text == "first"


def test_an_error_of_the_workloads_own_code_is_raised_and_a_full_disk_is_not(committed):
    class Failing(Files):
        def __init__(self, error: OSError) -> None:
            self.error = error

        def save_state(self, path):
            raise self.error

    with pytest.raises(FileNotFoundError):
        committed.begin(commit(1), [], Failing(FileNotFoundError(2, "no such file")))
    committed.begin(commit(2), [], Failing(OSError(28, "No space left on device")))
    assert "could not be kept in memory: [Errno 28] No space left" in committed.outcome("id2").error


def test_which_commits_counted_is_known_to_the_next_process(committed, tmp_path):
    committed.begin(commit(1), [], Arrays(1))
    committed.outcome("id1")
    assert committed.held().counted == frozenset()
    committed.begin(commit(2), ["id1"], Arrays(2))
    committed.outcome("id2")
    held = committed.held()
    assert held.counted == {"id1"}
    assert sorted(held.commits) == ["id1", "id2"]


def test_a_damaged_version_is_named_and_set_aside(committed):
    committed.begin(commit(1), [], Arrays(1))
    committed.outcome("id1")
    assert committed.damage("id1") is None
    [file] = Path(committed.held().place).rglob("dlrl_state.bytes")
    with file.open("r+b") as writing:
        writing.write(b"x")
    assert "is damaged" in committed.damage("id1")
    assert committed.held().commits == {}
    assert "there is no whole version" in committed.damage("id1")


def test_a_commit_on_durable_storage_is_held_when_memory_is_gone(committed, tmp_path):

    committed.begin(commit(1), [], Arrays(1))
    committed.outcome("id1")
    committed.make_durable("id1")
    shutil.rmtree(tmp_path / "memory")
    assert list(committed.held().commits) == ["id1"]
    workload = Arrays(5)
    committed.load("id1", workload)
    assert (workload.weights == 1).all()


def test_a_version_is_not_written_over_while_it_is_copied_to_durable_storage(committed, monkeypatch):

    gate = threading.Event()
    write = LocalStorage.write
    monkeypatch.setattr(LocalStorage, "write", lambda *args: gate.wait(30) and write(*args))
    committed.begin(commit(1), [], Arrays(1))
    committed.outcome("id1")
    committed.start_durable("id1", None)
    for version in (2, 3):
        committed.begin(commit(version), [f"id{version - 1}"] if version > 2 else [], Arrays(version))
        committed.outcome(f"id{version}")
    assert "id1" in committed.held().commits
    gate.set()

    wait_until(lambda: committed.durable_status().commits, "the copy is there", 10)
    committed.begin(commit(4), ["id3"], Arrays(4))
    committed.outcome("id4")
    assert sorted(committed.held().commits) == ["id1", "id3", "id4"]


def test_a_process_that_began_no_such_commit_says_so(committed):
    assert committed.outcome("unknown").error == "its process has begun no such commit"
