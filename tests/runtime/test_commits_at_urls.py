"""Durable commits over a network: to a stand-in for S3 (the server of moto, which s3fs speaks to), and to an FTP server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import wait_until

from dlrl_core import RLJobBuilder
from dlrl_core.errors import DlrlError
from dlrl_core.workload.captured_state import arrays_of, capture_arrays
from dlrl_core.workload.state_keeper import Commit
from dlrl_state.durable_state import DurableCopies, storage_at
from dlrl_state.keeper import NodeMemoryKeeper
from dlrl_state.run_memory import run_folders
from dlrl_state.state_memory import StateMemory, saved_state
from dlrl_state.version_folder import Version

pytestmark = pytest.mark.long

HERE = "sample_jobs.keeping"


@dataclass(frozen=True)
class S3StandIn:
    """A moto server, and the variables by which a client finds it."""

    process: subprocess.Popen
    env: dict[str, str]

    def filesystem(self):
        import s3fs

        return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Iterator[str]:
    """A folder with s3fs and the servers: that of DLRL_TEST_URL_PACKAGES if set, else one into which they are installed."""
    folder = os.environ.get("DLRL_TEST_URL_PACKAGES") or str(tmp_path_factory.mktemp("packages"))
    if not any(Path(folder).iterdir()):
        install = [sys.executable, "-m", "pip", "install", "-q", "--target", folder]
        subprocess.run([*install, "moto[server]>=5,<6", "s3fs", "pyftpdlib>=2,<3"], check=True, timeout=600)
    sys.path.append(folder)  # last: what this environment has comes first, and workloads get the same
    yield folder
    sys.path.remove(folder)


@pytest.fixture
def s3(packages, tmp_path, monkeypatch) -> Iterator[S3StandIn]:
    port = free_port()
    env = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "moto.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-p", str(port)],
            env={**os.environ, "PYTHONPATH": packages},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: is_listening(port), "the server listens", 60)
            stand_in = S3StandIn(server, env)
            stand_in.filesystem().mkdir("bucket")
            yield stand_in
        finally:
            server.send_signal(signal.SIGCONT)
            server.kill()
            server.wait()


@pytest.fixture
def own_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DLRL_MEMORY", str(tmp_path / "memory"))


@pytest.fixture
def ftp(packages, tmp_path) -> Iterator[str]:
    """The URL of a server whose files are in the folder `files`."""
    port, files = free_port(), tmp_path / "files"
    files.mkdir()
    command = [sys.executable, "-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(port), "-d", str(files), "-w"]
    server = subprocess.Popen(
        [*command, "-u", "user", "-P", "word"],
        env={**os.environ, "PYTHONPATH": packages},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_listening(port), "the server listens", 60)
        yield f"ftp://user:word@127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def commit(version: int) -> Commit:
    return Commit(version=version, id=f"id{version}", step=version - 1, progress={})


def memory() -> StateMemory:
    return StateMemory(run_id=f"test-{uuid.uuid4().hex}", workload="actor-0")


def written(memory: StateMemory, version: int, megabytes: int = 40):
    import numpy as np

    arrays = {"weights": np.full(megabytes * 10**6 // 8, version), "empty": np.zeros(0), "one": np.array(version / 7)}
    memory.write(commit(version), [f"id{version - 1}"], capture_arrays(arrays))
    return memory.held()[f"id{version}"], arrays


def test_versions_are_copied_pruned_brought_and_forgotten(s3, own_memory):
    here, copies = memory(), DurableCopies(storage_at("s3://bucket/folder/job/run/actor-0"))
    for version in (1, 2, 3):
        found, arrays = written(here, version)
        copies.copy(found)
    copies.prune("id3")
    assert sorted(copies.held()) == ["id2", "id3"]
    assert sorted(s3.filesystem().ls("bucket/folder/job/run/actor-0")) == [
        "bucket/folder/job/run/actor-0/2-id2",
        "bucket/folder/job/run/actor-0/3-id3",
    ]
    brought = arrays_of(saved_state(copies.bring("id3", memory()).folder))
    assert {name: array.tobytes() for name, array in brought.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    NodeMemoryKeeper.forget_durable("s3://bucket/folder/job/run")
    assert s3.filesystem().find("bucket") == []


def test_versions_are_copied_pruned_brought_and_forgotten_on_an_ftp_server(ftp, tmp_path, own_memory):
    here, copies = memory(), DurableCopies(storage_at(f"{ftp}/folder/job/run/actor-0"))
    assert copies.held() == {}
    for version in (1, 2, 3):
        found, arrays = written(here, version)
        copies.copy(found)
    copies.prune("id3")
    assert sorted(copies.held()) == ["id2", "id3"]
    brought = arrays_of(saved_state(copies.bring("id3", memory()).folder))
    assert brought["weights"].tobytes() == arrays["weights"].tobytes()
    NodeMemoryKeeper.forget_durable(f"{ftp}/folder/job/run")
    assert list((tmp_path / "files" / "folder" / "job").iterdir()) == []


def test_a_bucket_that_is_not_there_is_told_and_never_made(s3, own_memory):
    copies = DurableCopies(storage_at("s3://misspelt/folder/actor-0"))
    assert copies.held() == {}
    with pytest.raises(DlrlError, match="commit 1 was not copied to 's3://misspelt/folder/actor-0': .*bucket"):
        copies.copy(written(memory(), 1, 1)[0])
    assert s3.filesystem().ls("") == ["bucket"]


def is_copied(copies: DurableCopies, version: Version) -> bool:
    """Whether a copy that is begun now succeeds; none begins while one that was given up still hangs."""
    ended = threading.Event()
    copies.start(version, ended.set)
    return ended.wait(60) and copies.status().error is None


def test_a_server_that_hangs_is_seen_given_up_and_healed(s3, own_memory):
    """The server is stopped by SIGSTOP: connections are accepted by the kernel, and nothing answers."""
    here, copies, ended = memory(), DurableCopies(storage_at("s3://bucket/actor-0")), threading.Event()
    copies.copy(written(here, 1, 1)[0])
    s3.process.send_signal(signal.SIGSTOP)
    copies.start(written(here, 2, 1)[0], ended.set)
    wait_until(lambda: copies.status().still_s > 2, "it stands still", 30)
    copies.abandon()
    assert ended.is_set() and "stood still" in copies.status().error
    s3.process.send_signal(signal.SIGCONT)
    third = written(here, 3, 1)[0]
    wait_until(lambda: is_copied(copies, third), "copies are made again", 120, pause_s=1)
    assert copies.status().error is None
    assert sorted(copies.held()) == ["id1", "id3"]


def committed_step(handle) -> int:
    return handle.status().view["progress"]["committed_step"] or 0


def durable_step(handle) -> int:
    return (handle.status().view["progress"]["commits"] or {}).get("durable_step") or 0


def test_a_job_whose_rank_lost_its_memory_goes_back_to_its_commit_on_s3(ray_2_nodes_8_gpus, s3, tmp_path):
    config = {"enough": str(tmp_path / "enough")}
    builder = RLJobBuilder().device_per_node(2).config(config).trainer(HERE, "KeepingTrainer").global_env(s3.env)
    builder.actor(HERE, "Keeper").total(2).failover("role").restart_budget(backoff_s=0.0)
    job = builder.commits(every=1, durable_every=5, state_folder="s3://bucket/checkpoints").build()
    handle = job.submit("on-s3", blocking=False)
    wait_until(lambda: durable_step(handle) >= 5, "commits are on S3", 90)
    [folder] = [one / "actor-1" for one in run_folders(handle.status().view["run_id"]) if one.exists()]
    pid = next(one["pid"] for one in handle.status().workloads if one["name"] == "actor-1")
    os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(folder)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: handle.status().view["incidents"], "the death is noticed", 60)
    before = committed_step(handle)
    wait_until(lambda: committed_step(handle) > before + 3, "training goes on", 60)
    (tmp_path / "enough").touch()
    value = handle.wait(timeout=120).value
    assert value[0] == value[1] == list(range(len(value[0])))
    assert s3.filesystem().find("bucket") == []
