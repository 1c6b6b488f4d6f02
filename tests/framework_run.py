"""A job of a real framework that is watched and hurt while it runs."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from checks import assert_nothing_left, short_temp_folder, wait_until

from dlrl_chaos.chaos import Chaos
from dlrl_core.api.job_handle import JobHandle
from dlrl_vllm.owned_files import left_files

LIMIT_S = 600.0
ENDED = ("finished", "failed", "stopped")
BUDGET = {"workload": 20, "role": 20, "job": 20, "node": 1000, "backoff_s": 0.0}
"""Allows what tests do to a job."""
_ENV = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
_temp_folders: list[Path] = []
"""Of all jobs so far."""


@dataclass
class Watched:
    """A job of the tiny PPO, and what was seen of it."""

    handle: JobHandle
    steps: list[int] = field(default_factory=list)
    """Steps as they were seen, in order of time."""

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.look() < step:
            status = self.handle.status()
            assert status.state not in ENDED, f"the job was over before step {step}: {status.state}, {status.why}"
            assert time.monotonic() < deadline, f"step {step} was not reached; seen: {self.steps}"
            time.sleep(0.1)

    def look(self) -> int:
        """The step it is in, counted from 1; 0 before the first."""
        step = self.handle.status().step
        if step is not None and (not self.steps or self.steps[-1] != step):
            self.steps.append(step)
        return self.steps[-1] if self.steps else 0

    def hurt(self, who: str, *, chance: random.Random) -> None:
        """SIGKILL it at some moment of a step."""
        self.wait_for_step(self.look() + 1)
        time.sleep(chance.uniform(0.0, 1.0))
        Chaos(self.handle.name).inject(who, "kill")

    def wait_for_restarts(self, expected: dict[str, int], when: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while (seen := self.restarts()) != expected:
            too_many = {name: count for name, count in seen.items() if count > expected[name]}
            status = self.handle.status()
            assert not too_many, f"{when} these restarted that should not: {too_many}"
            assert status.state not in ENDED, f"{when} the job was over: {status.state}, {status.why}; restarts: {seen}"
            assert time.monotonic() < deadline, f"{when}: {seen}, not {expected}"
            time.sleep(0.1)

    def restarts(self) -> dict[str, int]:
        return {one["name"]: one["restarts"] for one in self.handle.status().workloads}


def survive(job: Watched, deaths: dict[str, set[str]], *, seed: int) -> Any:
    """Kill one after the other, each at some moment of a step; `deaths` tells whose processes are new after each."""
    chance = random.Random(seed)
    job.wait_for_step(2)
    expected = dict.fromkeys(job.restarts(), 0)
    for who, renewed in deaths.items():
        job.hurt(who, chance=chance)
        expected.update({name: expected[name] + 1 for name in renewed})
        job.wait_for_restarts(expected, f"after the death of {who}")
        job.wait_for_step(job.look() + 1)
    result = job.handle.wait(timeout=LIMIT_S)
    assert job.restarts() == expected, "whoever was not meant to restart did not"
    assert job.steps == sorted(job.steps), "a committed step was done again"
    assert result.value["history"][-1]["step"] == result.value["steps"]
    return result.value


def make_tiny(example: str, folder: Path) -> Path:
    """The tiny models of an example."""
    script = Path(__file__).parents[1] / "examples" / example / "make_tiny.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def cluster(gpus: int) -> Iterator[str]:
    """A Ray of one node with logical GPUs; its address."""
    from dlrl_core.plan import ClusterView
    from dlrl_local_ray.local_cluster import LocalCluster

    local = LocalCluster()
    try:
        yield local.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 16, "GPU": gpus}))
    finally:
        local.stop()


@contextlib.contextmanager
def connected(address: str) -> Iterator[str]:
    """This process is connected to it. In the end nothing may be left: no actor, no state, no engine, none of its files."""
    import ray

    ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        yield address
        assert_nothing_left()
        wait_until(lambda: not engine_processes(), "all processes of vLLM engines are gone")
        wait_until(lambda: not left_files(), "no shared memory and no files of dead engines are left")
        assert [*map(str, temporary_files())] == []
    finally:
        ray.shutdown()


def environment() -> dict[str, str]:
    """For all processes of a job, with a temporary folder of its own."""
    _temp_folders.append(short_temp_folder())
    return {**_ENV, "TMPDIR": str(_temp_folders[-1])}


def temporary_files() -> list[Path]:
    """What jobs have left in their temporary folders, but for what torch compiled."""
    return [path for folder in _temp_folders for path in folder.iterdir() if not path.name.startswith("torchinductor_")]


def engine_processes() -> list[str]:
    """The processes that vLLM itself starts; it names them."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
        if line.startswith(("VLLM::", "vllm::")):
            found.append(f"{process.pid} {line}")
    return found
