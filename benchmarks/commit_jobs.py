"""What the commit benchmarks share: jobs on one local Ray, and what is made of the times of their steps.

A job has one role, whose steps read its state for a while, as generating and scoring does, and then change all of it.
One step of three commits nothing. For the others commits are due as with the default budget, which is told for the
time of these steps alone; so the job is told two thirds of it.

- Blocking: the time of `commit`, and of a call right before the change that waits for what is left of the copy,
  against 0.05 of one copy of the same bytes in the same process and 30 ms.
- Step: the mean time of a step with commits at this pace, against the median of those without, over whole intervals
  between commits from the very first one on, which gets its memory from the kernel and takes longest.
- Memory: the most that files in the folder of the commits had at once, against the bytes of the state.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.commit_roles import COMMITTED, INTERVALS, LEFT_OUT, TURN, WITHOUT
from benchmarks.report import Comparison, report

ROOT = Path(__file__).parents[1]
STEP_BAR, MEMORY_BAR = 1.03, 2.1
_DEFAULT_BUDGET = 0.03
KINDS = (COMMITTED, LEFT_OUT, WITHOUT)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One job."""

    name: str
    role: str
    """The class of its role, as 'module:class'."""
    seconds: float
    """How long it trains at least."""
    read_s: float
    """How long a step reads the state, about."""
    config: Mapping[str, Any] = field(default_factory=dict)


def run(cases: Sequence[Case]) -> None:
    """Run all of them one after the other, or those that the command names, and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="of cases; all, if none is given")
    names = parser.parse_args().names or [case.name for case in cases]
    with _memory_of_its_own() as memory, _local_ray():
        chosen = [case for case in cases if case.name in names]
        found = [one for case in chosen for one in _compared(case.name, _steps_of(case, memory))]
    report(found, ours="commits", theirs="none, or bar")


@contextmanager
def models(make_tiny: str, sizes: Iterable[str]) -> Iterator[Path]:
    """A folder with models of each size, made on the spot."""
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            make = [sys.executable, str(ROOT / make_tiny), str(Path(folder) / size), "--size", size]
            subprocess.run(make, check=True, capture_output=True)
        yield Path(folder)


@contextmanager
def _memory_of_its_own() -> Iterator[Path]:
    shared = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory(dir=shared if shared.exists() else None) as memory,
    ):
        os.environ.update(DLRL_HOME=home, DLRL_MEMORY=memory)
        yield Path(memory)


@contextmanager
def _local_ray() -> Iterator[None]:
    """Logical GPUs; processes have one thread to compute with, as Ray has it for an actor of one CPU."""
    import ray

    from dlrl_core.plan import ClusterView
    from dlrl_local_ray.local_cluster import LocalCluster

    cluster = LocalCluster()
    try:
        address = cluster.add_nodes(ClusterView.described(node_num=1, resources={"CPU": 8, "GPU": 2}))
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        yield
    finally:
        ray.shutdown()
        cluster.stop()


def _steps_of(case: Case, memory: Path) -> dict[str, Any]:
    from dlrl_core import RLJobBuilder

    module, _, role = case.role.partition(":")
    told = {"seconds": case.seconds, "read_s": case.read_s, "memory": str(memory), **case.config}
    builder = RLJobBuilder().device_per_node(1).config(told).trainer("benchmarks.commit_roles", "PacedTrainer")
    builder.commits(budget=_DEFAULT_BUDGET * (TURN - 1) / TURN)
    job = builder.actor(module, role).failover("role").build()
    found: dict[str, Any] = job.submit(f"commits-{case.name.replace(' ', '-')}").value
    return found


def _compared(name: str, found: Mapping[str, Any]) -> list[Comparison]:
    steps, blocked = _whole_intervals(name, found["steps"]), _blocked(found["steps"])
    times = {kind: [_seconds(step) for step in steps if step["kind"] == kind] for kind in KINDS}
    _show(name, found, times)
    allowed = [0.05 * statistics.median(found["copies"]) + 0.03]
    without_s = [statistics.median(times[WITHOUT])]
    return [
        Comparison(name=f"{name} blocking", ours_s=blocked, theirs_s=allowed, bar=1.0, is_of_medians=True),
        Comparison(name=f"{name} step", ours_s=[_paced(times)], theirs_s=without_s, bar=STEP_BAR),
        Comparison(name=f"{name} memory", ours_s=[found["memory"] / found["state"]], theirs_s=[1.0], bar=MEMORY_BAR),
    ]


def _whole_intervals(name: str, steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """From the first step that was committed to the one before the last that was."""
    committed = [number for number, step in enumerate(steps) if step["kind"] == COMMITTED]
    if len(committed) <= INTERVALS:
        sys.exit(f"{name}: there were {len(committed)} commits in {sum(map(_seconds, steps)):.0f} s, too few to compare")
    return steps[committed[0] : committed[-1]]


def _blocked(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    return [step["commit"] + step["touch"] for step in steps if step["kind"] == COMMITTED]


def _seconds(step: Mapping[str, Any]) -> float:
    return sum(value for value in step.values() if isinstance(value, float))


def _paced(times: Mapping[str, Sequence[float]]) -> float:
    """The mean of steps that are committed if they are due. Of those that were left out, the median stands for all."""
    left_out, committed = times[LEFT_OUT], times[COMMITTED]
    rest = len(left_out) * statistics.median(left_out) if left_out else 0.0
    return (sum(committed) + rest) / (len(committed) + len(left_out))


def _show(name: str, found: Mapping[str, Any], times: Mapping[str, Sequence[float]]) -> None:
    medians = ", ".join(f"{len(all_)} {kind} {statistics.median(all_):.3f} s" for kind, all_ in times.items() if all_)
    copy = statistics.median(found["copies"])
    said = f"{name}: {found['state'] / 1e6:.0f} MB, a copy {copy:.3f} s; {medians}"
    print(said, file=sys.stderr, flush=True)
    if "DEBUG" in os.environ:
        for step in found["steps"]:
            print({k: v if isinstance(v, str) else round(v, 3) for k, v in step.items()}, file=sys.stderr)
