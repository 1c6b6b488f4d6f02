"""Shared memory and temporary files of killed engines are given back; those of other programs are never touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
from checks import is_running, short_temp_folder, wait_until

from dlrl_vllm.owned_files import left_files, own_files, sweep

OWNER = Path(__file__).parent / "engine_owner.py"
CLAIM = """
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from dlrl_vllm import owned_files

for _ in range(40):
    owned_files._by_process.clear()
    owned = owned_files.own_files()
    memory = SharedMemory(name=f"test_{owned.memory_name}", create=True, size=16)
    assert all(claim.lock.exists() for claim in owned.claims) and owned.temp_folder.is_dir()
    owned_files.sweep()
    SharedMemory(name=memory.name).close()
    owned.remove()
"""


@dataclass
class Owner:
    """The process of `engine_owner.py`."""

    process: subprocess.Popen[str]
    paths: list[Path]
    engine: int
    children: list[int]
    """The engine, and Python's resource tracker."""

    def left(self) -> list[Path]:
        return [path for path in self.paths if path.exists()]

    @property
    def temp_folder(self) -> Path:
        """Unlike shared memory, it can't be swept by another program on this machine: see `temp`."""
        return self.paths[-1]

    def kill_all(self) -> None:
        """SIGKILL of all at once: nothing is left that could remove anything."""
        pids = [*self.children, self.process.pid]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        self.process.wait()
        wait_until(lambda: self.temp_folder in left_files(), "all processes are gone, to their last thread")


@pytest.fixture
def temp(monkeypatch) -> Path:
    """The temporary folder of this process and of those that it starts."""
    folder = short_temp_folder()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@contextmanager
def owner(*before: str) -> Iterator[Owner]:
    """An owner with its engine, started by the words before; both are gone in the end."""
    words = [*before, sys.executable, str(OWNER)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        started = Owner(process, [*map(Path, told["paths"])], told["engine"], told["children"])
        try:
            yield started
        finally:
            process.kill()


def test_what_a_killed_engine_left_is_removed_when_the_next_engine_starts(temp):
    with owner() as dead:
        assert dead.left() == dead.paths, "shared memory, a semaphore, a temporary file and the folder are there"
        dead.kill_all()
        assert dead.temp_folder.exists()

    with owner() as other:
        assert dead.left() == []
        assert other.left() == other.paths


def test_the_engine_removes_everything_when_its_workload_is_killed(temp):
    with owner() as one:
        one.process.kill()
        wait_until(lambda: not is_running(one.engine), "the engine is gone")
        wait_until(lambda: not one.left() and not list(temp.iterdir()), "and so is all that both had")


def test_a_workload_that_is_ended_leaves_nothing(temp):
    with owner() as one:
        one.process.communicate("\n", timeout=30)
        wait_until(lambda: not is_running(one.engine), "the engine is gone")
        assert one.left() == []
        assert list(temp.iterdir()) == []


def test_an_engine_that_lives_on_keeps_what_it_uses(temp):
    """Its workload is gone, and it has not noticed yet: it is stopped."""
    with owner() as one:
        os.kill(one.engine, signal.SIGSTOP)
        one.process.kill()
        one.process.wait()
        sweep()
        assert one.left() == one.paths
        os.kill(one.engine, signal.SIGCONT)
        wait_until(lambda: not one.left(), "it removes them when it ends")


def test_memory_and_files_of_others_stay(temp):
    """Of a living workload, of Python programs that have nothing to do with dlrl, and of another boot or machine."""
    elsewhere = temp / "dlrl-e000000-0123abcd"
    elsewhere.mkdir()
    (temp / "dlrl-e000000-0123abcd.lock").touch()
    memory = SharedMemory(create=True, size=16)
    with owner() as living, owner() as dead:
        dead.kill_all()
        assert sweep()

        assert dead.left() == []
        assert living.left() == living.paths
        assert Path("/dev/shm", memory.name).exists()
        assert elsewhere.exists()
    memory.close()
    memory.unlink()


def test_a_process_of_another_container_keeps_what_it_uses(temp):
    """It has other process ids, and shares /dev/shm and the temporary folder."""
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make a namespace of process ids")
    with owner(*apart) as contained:
        assert contained.engine < 100, "it has process ids of its own"
        sweep()
        assert contained.left() == contained.paths
        contained.process.kill()
        wait_until(lambda: sweep() is not None and not contained.left(), "they are removed when it is gone")


def test_nothing_is_taken_from_processes_that_begin_while_others_are_swept(temp):
    processes = [subprocess.Popen([sys.executable, "-c", CLAIM], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=120)[1] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4, errors


def test_a_temporary_folder_with_a_long_path_is_used_as_it_is(temp, monkeypatch):
    folder = temp / ("long" * 12)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    script = "from dlrl_vllm.owned_files import own_files; print(own_files().temp_folder, len(own_files().claims))"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["None", "1"]
    sweep()


def test_the_doctor_tells_what_killed_engines_left_and_removes_it_when_asked(temp, shell):
    with owner() as dead:
        dead.kill_all()
    env = {"TMPDIR": str(temp)}
    seen = shell.run("doctor", "--json", env=env)
    found = [check for check in seen.json["checks"] if check["subject"] == "engines"]
    assert str(dead.temp_folder) in {check["seen"].split("'")[1] for check in found}
    assert {(check["level"], check["todo"]) for check in found} == {("warning", "run: dlrl doctor --clean")}
    assert dead.temp_folder.exists()

    cleaned = shell.run("doctor", "--clean", env=env)
    assert f"'{dead.temp_folder}' was removed" in cleaned.out
    assert dead.left() == []
    assert str(dead.temp_folder) not in shell.run("doctor", env=env).out


def test_a_process_owns_one_set_of_files(temp):
    assert own_files() is own_files()
    own_files().remove()
