"""The embedded local Ray: nothing of it stays, however its driver ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from checks import short_temp_folder, wait_until

HERE = "sample_jobs.endings"
TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def short_tmp():
    """A temp folder whose path is short enough for Ray's sockets."""
    folder = short_temp_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def driver(script: str, tmp: Path, home: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", f"from dlrl_core import RLJobBuilder\nH = '{HERE}'\n{script}"],
        env={**os.environ, "PYTHONPATH": TESTS, "TMPDIR": str(tmp), "DLRL_HOME": str(home)},
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


def test_a_failing_job_ends_its_embedded_ray_too(short_tmp, dlrl_home):
    failing = driver("RLJobBuilder().trainer(H, 'Raises').actor(H, 'Worker').build().submit('f')", short_tmp, dlrl_home)
    _, err = failing.communicate(timeout=150)
    assert failing.returncode == 1
    assert "JobFailedError: job 'f' failed: the trainer raised RuntimeError: the loss is not a number" in err
    wait_until(lambda: not processes_with(short_tmp), "all processes are gone")
    assert not any(short_tmp.iterdir())
