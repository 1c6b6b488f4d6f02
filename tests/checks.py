"""Conditions that tests wait for, and what must not be left behind."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

DEADLINE_S = 30.0
MARK = "DLRL_TEST_PROCESS"
"""In the environment of all processes that a test process starts."""
_HOSTS = ("ray::Master", "ray::TrainerHost", "ray::WorkloadHost")
"""What the command lines of a job's processes begin with."""
_connected_to: list[str] = []
"""The cluster of the connection that the last test left."""


def wait_until(
    condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S, *, pause_s: float = 0.05
) -> Any:
    """What the condition returns as soon as it is true."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(pause_s)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


def side_by_side(names: Iterable[str], run: Callable[[str], Any], *, at_once: int) -> dict[str, Any]:
    """What `run` returns for each name. So many run at the same time, because a job mostly waits."""
    all_names = list(names)
    with ThreadPoolExecutor(at_once) as threads:
        return dict(zip(all_names, threads.map(run, all_names), strict=True))


def short_temp_folder() -> Path:
    """A folder whose path is short enough for Ray's sockets, and that the end of the run removes in any case."""
    base = Path(os.environ.get("DLRL_TEST_TMP", "/tmp/d"))
    return Path(tempfile.mkdtemp(prefix=f"{base.name}-", dir=base.parent))


@contextmanager
def connected(address: str) -> Iterator[None]:
    """This process is connected to the cluster, and stays so: the next test may be of the same one.

    At the end, nothing of any job may be left on it.
    """
    import ray

    if _connected_to != [address] or not ray.is_initialized():
        disconnect()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        _connected_to.append(address)
    try:
        yield
        assert_nothing_left()
    except BaseException:
        disconnect()
        raise


def disconnect() -> None:
    """End the connection that `connected` left, if there is one."""
    if _connected_to:
        import ray

        ray.shutdown()
        _connected_to.clear()


def assert_nothing_left() -> None:
    """No actor and no placement group is left on the connected cluster, no process and no state of a job anywhere."""
    from dlrl_core.scheduler.cluster_probe import living_actors, standing_reservations

    wait_until(lambda: not living_actors(), "all actors of jobs are gone")
    wait_until(lambda: not standing_reservations(), "all reservations are released")
    wait_until(lambda: not processes_called(*_HOSTS), "all processes of jobs are gone")
    memory = Path(os.environ.get("DLRL_MEMORY", "/dev/shm"))
    wait_until(lambda: not list(memory.glob(f"dlrl-{os.getuid()}/*")), "no state is left in memory")


def processes_called(*titles: str) -> list[psutil.Process]:
    """Processes whose command line begins with one of these, below this test process alone: others may run beside it."""
    found = []
    for process in psutil.process_iter():
        try:
            is_called_so = " ".join(process.cmdline()).startswith(titles)
            if is_called_so and process.environ().get(MARK) == os.environ.get(MARK):
                found.append(process)
        except psutil.Error:
            continue
    return found


def master_pid() -> int:
    """Of the only job there is."""
    [master] = processes_called("ray::Master")
    return master.pid


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children_of_this_process() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
