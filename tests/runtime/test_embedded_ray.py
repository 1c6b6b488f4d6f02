"""The embedded local Ray: nothing of it stays, however its driver ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from checks import short_temp_folder, wait_until

TESTS = str(Path(__file__).parents[1])
START = "from dlrl_core import RLJobBuilder\nH = 'sample_jobs.endings'\n"
SCRIPTS = {
    "killed": (
        "RLJobBuilder().config({'mark': 'mark'}).trainer(H, 'RunsForever').actor(H, 'Worker').build().submit('k')\n"
    ),
    "two jobs": (
        "jobs = [RLJobBuilder().config({'word': word}).trainer(H, 'Finishes').actor(H, 'Worker').build() for word in 'ab']\n"
        "handles = [job.submit(job.spec.config.plain()['word'], blocking=False) for job in jobs]\n"
        "print([handle.wait().value['job'] for handle in handles])\n"
        "import ray\n"
        "print(ray.is_initialized())\n"
    ),
    "failing": "RLJobBuilder().trainer(H, 'Raises').actor(H, 'Worker').build().submit('f')\n",
}


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A process with a temp folder of its own, whose path is short enough for Ray's sockets."""

    process: subprocess.Popen[str]
    temp: Path
    mark: Path

    def processes(self) -> list[psutil.Process]:
        """Everything that was started for, or knows of, an embedded Ray in this folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TMPDIR") == str(self.temp) and process.pid != os.getpid():
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """One driver for each script; all of them begin at once."""
    started = {name: start(script, tmp_path_factory.mktemp("driver")) for name, script in SCRIPTS.items()}
    yield started
    for driver in started.values():
        driver.process.kill()
        shutil.rmtree(driver.temp, ignore_errors=True)


def start(script: str, folder: Path) -> Driver:
    temp, mark = short_temp_folder(), folder / "mark"
    process = subprocess.Popen(
        [sys.executable, "-c", START + script.replace("'mark': 'mark'", f"'mark': '{mark}'")],
        env={**os.environ, "PYTHONPATH": TESTS, "TMPDIR": str(temp), "DLRL_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Driver(process=process, temp=temp, mark=mark)


def test_a_killed_driver_leaves_no_process_and_no_file(drivers):
    driver = drivers["killed"]
    wait_until(lambda: driver.mark.exists() and driver.mark.read_text(), "training has begun", 90)
    assert len(driver.processes()) > 5
    driver.process.send_signal(signal.SIGKILL)
    driver.process.communicate()
    wait_until(lambda: not driver.processes(), "all processes are gone")
    wait_until(lambda: not any(driver.temp.iterdir()), "all files are gone")


def test_two_jobs_of_one_driver_share_one_embedded_ray_and_leave_nothing(drivers):
    driver = drivers["two jobs"]
    out, err = driver.process.communicate(timeout=150)
    assert out.splitlines()[-2:] == ["['a', 'b']", "False"], err
    assert err.count("a local Ray is started for this job: 1 node x 1 logical GPU (simulated on this machine)") == 2
    wait_until(lambda: not driver.processes(), "all processes are gone")
    assert not any(driver.temp.iterdir())


def test_a_failing_job_ends_its_embedded_ray_too(drivers):
    driver = drivers["failing"]
    _, err = driver.process.communicate(timeout=150)
    assert driver.process.returncode == 1
    assert "JobFailedError: job 'f' failed: the trainer raised RuntimeError: the loss is not a number" in err
    wait_until(lambda: not driver.processes(), "all processes are gone")
    assert not any(driver.temp.iterdir())
