"""What a workload has started is ended with it, and leaves no shared memory behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from checks import is_running, wait_until

WORKLOAD = """
import multiprocessing, os, sys, time
from multiprocessing.shared_memory import SharedMemory

def engine(told):
    memory = SharedMemory(create=True, size=1024)
    told.send((os.getpid(), memory.name))
    time.sleep(600)

if __name__ == "__main__":
    from dlrl_core.workload.process import end_children
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=engine, args=(there,)).start()
    print(*here.recv(), flush=True)
    end_children()
    os._exit(0)
"""


def test_children_are_killed_and_their_shared_memory_goes(tmp_path):
    script = tmp_path / "workload.py"
    script.write_text(WORKLOAD)
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    pid, memory = told.stdout.split()

    wait_until(lambda: not is_running(int(pid)), "the engine is gone")
    wait_until(lambda: not (Path("/dev/shm") / memory).exists(), "its shared memory too")


TRAINER = """
import subprocess, sys, time
from dlrl_core.trainer.workload_directory import Lease

child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
Lease(term=0, until=time.monotonic() + 600).heard(False, time.monotonic())
"""


def test_a_trainer_whose_lease_is_refused_ends_with_its_children_and_says_why():
    told = subprocess.run([sys.executable, "-c", TRAINER], check=False, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1
    assert told.stderr == "dlrl: the trainer was replaced while it was out of reach; this process ends\n"
    wait_until(lambda: not is_running(int(told.stdout)), "its child is gone")
