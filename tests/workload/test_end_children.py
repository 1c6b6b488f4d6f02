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
