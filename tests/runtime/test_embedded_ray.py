"""The embedded local Ray: no process of it stays, however its driver ends; a start that fails tells why."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from checks import short_temp_folder, wait_until

from dlrl_core.errors import ClusterError
from dlrl_core.plan import ClusterView
from dlrl_local_ray import local_cluster
from dlrl_local_ray.keeper import remove
from dlrl_local_ray.local_cluster import LocalCluster

HERE = "sample_jobs.endings"
NODE = ClusterView.described(node_num=1, resources={"CPU": 1, "GPU": 0})
TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def short_tmp():
    """A temp folder whose path is short enough for Ray's sockets."""
    folder = short_temp_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def driver(script: str, tmp: Path, home: Path, **env: str) -> subprocess.Popen:
    paths = os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", f"from dlrl_core import RLJobBuilder\nH = '{HERE}'\n{script}"],
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp), "DLRL_HOME": str(home), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_with(folder: Path) -> list[psutil.Process]:
    """Everything that was started for, or knows of, an embedded Ray in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder) and process.pid != os.getpid():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def test_a_killed_driver_leaves_no_process_and_no_file(short_tmp, dlrl_home):
    mark = dlrl_home.parent / "mark"
    script = (
        f"RLJobBuilder().config({{'mark': '{mark}'}}).trainer(H, 'RunsForever').actor(H, 'Worker').build().submit('k')"
    )
    killed = driver(script, short_tmp, dlrl_home)
    wait_until(lambda: mark.exists() and mark.read_text(), "training has begun", 60)
    assert len(processes_with(short_tmp)) > 5
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    wait_until(lambda: not processes_with(short_tmp), "all processes are gone")
    wait_until(lambda: not any(short_tmp.iterdir()), "all files are gone")


def test_two_jobs_of_one_driver_share_one_embedded_ray_and_leave_nothing(short_tmp, dlrl_home):
    script = (
        "jobs = [RLJobBuilder().config({'word': word}).trainer(H, 'Finishes').actor(H, 'Worker').build() for word in 'ab']\n"
        "handles = [job.submit(job.spec.config.plain()['word'], blocking=False) for job in jobs]\n"
        "print([handle.wait().value['job'] for handle in handles])\n"
        "import ray\n"
        "print(ray.is_initialized())\n"
    )
    done = driver(script, short_tmp, dlrl_home)
    out, err = done.communicate(timeout=150)
    assert out.splitlines()[-2:] == ["['a', 'b']", "False"], err
    assert err.count("a local Ray is started for this job: 1 node x 1 logical GPU (simulated on this machine)") == 2
    wait_until(lambda: not processes_with(short_tmp), "all processes are gone")
    assert not any(short_tmp.iterdir())


def test_a_failing_job_ends_its_embedded_ray_too_and_tells_once_where_the_logs_are(short_tmp, dlrl_home):
    failing = driver("RLJobBuilder().trainer(H, 'Raises').actor(H, 'Worker').build().submit('f')", short_tmp, dlrl_home)
    _, err = failing.communicate(timeout=150)
    assert failing.returncode == 1
    assert "JobFailedError: job 'f' failed: the trainer raised RuntimeError: the loss is not a number" in err
    [logs] = re.findall(r"^dlrl: the output of all processes, and Ray's logs, are in (.+)$", err, re.MULTILINE)
    assert Path(logs).parent == dlrl_home / "logs"
    names = [path.name for path in Path(logs).iterdir()]
    assert {"raylet.out", "keeper.log"} <= {*names}
    assert any(name.startswith("worker-") for name in names)
    wait_until(lambda: not processes_with(short_tmp), "all processes are gone")
    assert not any(short_tmp.iterdir())


LOUD = "\n".join([
    "L = 'sample_jobs.loud'",
    "builder = RLJobBuilder().device_per_node(3).trainer(L, 'Loud').actor(L, 'LoudActor').total(2)",
    "builder.rollout(L, 'Dies').failover('stop').build().submit('loud')",
])  # fmt: skip


def test_a_driver_shows_what_its_processes_print_and_nothing_of_ray(short_tmp, dlrl_home):
    loud = driver(LOUD, short_tmp, dlrl_home)
    out, err = loud.communicate(timeout=150)
    assert loud.returncode == 1, err
    for rank in (0, 1):
        assert re.search(rf"^\(actor-{rank} pid=\d+\) actor {rank} works$", out, re.MULTILINE), out
        assert re.search(rf"^\(actor-{rank} pid=\d+\) actor {rank} complains$", err, re.MULTILINE), err
    for text in (out, err):
        assert not any(noise in text for noise in ("Warning", "\x1b[", "(raylet)"))


@pytest.mark.long
def test_a_local_ray_that_fails_to_start_tells_why(short_tmp, dlrl_home):
    """No file may grow beyond 20 kB, as on a full disk; Ray gives up after half a minute."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    script = f"{limit}RLJobBuilder().trainer(H, 'Finishes').actor(H, 'Worker').build().submit('b')"
    broken = driver(script, short_tmp, dlrl_home)
    _, err = broken.communicate(timeout=150)
    assert broken.returncode == 1
    assert "ClusterError: the embedded local Ray did not start: " in err
    assert "keeper.log: " in err and "all logs are kept in " in err
    wait_until(lambda: not processes_with(short_tmp), "all processes are gone")
    assert not any(short_tmp.iterdir())


def test_a_keeper_that_was_killed_is_named_and_its_folder_is_removed(short_tmp, monkeypatch):
    monkeypatch.setattr(local_cluster, "_short_temp_dir", lambda: str(short_tmp))
    killed = LocalCluster()
    killed._keeper.kill()
    killed._keeper.wait()
    with pytest.raises(ClusterError, match="the embedded local Ray did not start: its keeper process"):
        killed.add_nodes(NODE)
    assert (killed.folder / "keeper.log").exists()
    killed.stop()
    assert not any(short_tmp.iterdir())


def test_a_keeper_that_stands_still_is_given_up_by_what_was_waited_for(short_tmp, monkeypatch):
    monkeypatch.setattr(local_cluster, "_short_temp_dir", lambda: str(short_tmp))
    monkeypatch.setattr(local_cluster, "_STILL_S", 2.0)
    still = LocalCluster()
    still._keeper.send_signal(signal.SIGSTOP)
    with pytest.raises(ClusterError, match=r"did not start: its keeper process was waited for \d s, and nothing moved"):
        still.add_nodes(NODE)
    still._keeper.kill()
    still.stop()
    assert not any(short_tmp.iterdir())


def test_logs_of_only_the_last_runs_are_kept(tmp_path):
    for number in range(12):
        (tmp_path / "logs" / f"2026-{number:02}").mkdir(parents=True)
    (tmp_path / "run" / "ray" / "session_1" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "ray" / "session_latest").symlink_to(tmp_path / "run" / "ray" / "session_1")
    (tmp_path / "run" / "keeper.log").write_text("started")
    remove(tmp_path / "run", tmp_path / "logs" / "2026-12")
    assert not (tmp_path / "run").exists()
    assert [path.name for path in sorted((tmp_path / "logs").iterdir())] == [f"2026-{n:02}" for n in range(3, 13)]
    assert (tmp_path / "logs" / "2026-12" / "keeper.log").read_text() == "started"
