"""A workload with an engine process, without vLLM: both make shared memory, semaphores and temporary files.

Run as a program: prints what there is as JSON, and ends as a workload does when a line comes. Its engine process is
started as vLLM starts its own (spawn), and calls what vLLM calls in it (`attach`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.shared_memory import SharedMemory
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


def prepare() -> None:
    """What an adapter would prepare in an engine's process."""


def made() -> dict[str, Any]:
    """Shared memory, a semaphore and, in the engine, a temporary file; the objects have to be kept."""
    return {"memory": SharedMemory(create=True, size=1024), "lock": SPAWN.Lock()}


def engine(told: Any) -> None:
    from dlrl_vllm.engine_process import attach

    attach()
    kept = made()
    handle, path = tempfile.mkstemp()
    os.close(handle)
    told.send([f"/dev/shm/{kept['memory'].name}", f"/dev/shm/sem.{kept['lock']._semlock.name[1:]}", path])
    time.sleep(600)


def main() -> None:
    import psutil

    from dlrl_core.workload.process import end_children
    from dlrl_vllm.engine_process import own_engine

    own_engine("engine_owner")
    kept = made()
    here, there = multiprocessing.Pipe()
    process = SPAWN.Process(target=engine, args=(there,))
    process.start()
    paths = [f"/dev/shm/{kept['memory'].name}", *here.recv(), os.environ["TMPDIR"]]
    pids = [child.pid for child in psutil.Process().children(recursive=True)]
    print(json.dumps({"paths": paths, "engine": process.pid, "children": pids}), flush=True)
    sys.stdin.readline()
    end_children()
    os._exit(0)


if __name__ == "__main__":
    main()
