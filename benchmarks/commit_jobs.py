"""What the commit benchmarks share: jobs on one local Ray, and what is made of the times of their steps.

A job has one role, whose steps read its state for a while, as generating and scoring does, and then change all of it.
One step of three commits nothing. For the others commits are due as with the default budget, which is told for the
time of these steps alone; so the job is told two thirds of it.

- Blocking: the time of `commit`, and of a call right before the change that waits for what is left of the copy,
  against 0.05 of one copy of the same bytes in the same process and 30 ms.
- Step: the time of a step with commits at this pace, against those without that are next to it, over whole intervals
  between commits. The first commits, which get their memory from the kernel, are not among them.
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

from benchmarks.commit_roles import COMMITTED, INTERVALS, LEFT_OUT, PARTS, TURN, WITHOUT
from benchmarks.report import Comparison, report

ROOT = Path(__file__).parents[1]
STEP_BAR, MEMORY_BAR = 1.03, 2.1
_DEFAULT_BUDGET = 0.03
_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
"""For glibc: an update gets and frees gigabytes, and with new pages from the kernel it takes 2 s or 5 s."""
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

    os.environ.update(_KEEP_MEMORY)
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
    _show(name, found, steps)
    allowed = [0.05 * statistics.median(found["copies"]) + 0.03]
    memory = [found["memory"] / found["state"]]
    without_s = statistics.median(_seconds(step) for step in steps if step["kind"] == WITHOUT)
    return [
        Comparison(name=f"{name} blocking", ours_s=blocked, theirs_s=allowed, bar=1.0, is_of_medians=True),
        Comparison(name=f"{name} step", ours_s=[_paced(steps) * without_s], theirs_s=[without_s], bar=STEP_BAR),
        Comparison(name=f"{name} memory", ours_s=memory, theirs_s=[1.0], bar=MEMORY_BAR, is_time=False),
    ]


def _whole_intervals(name: str, steps: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """From the first step that was committed to the one before the last that was."""
    committed = [number for number, step in enumerate(steps) if step["kind"] == COMMITTED]
    if len(committed) <= INTERVALS:
        sys.exit(
            f"{name}: there were {len(committed)} commits in {sum(map(_seconds, steps)):.0f} s, too few to compare"
        )
    return steps[committed[0] : committed[-1]]


def _blocked(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    return [step["commit"] + step["touch"] for step in steps if step["kind"] == COMMITTED]


def _seconds(step: Mapping[str, Any]) -> float:
    return sum(value for value in step.values() if isinstance(value, float))


def _paced(steps: Sequence[Mapping[str, Any]]) -> float:
    """How many times as long a step takes that is committed if it is due, as one without commits.

    Each is compared with the steps without that are next to it, since a machine is slow for a while and fast for a
    while. Of those that were committed and of those that were left out the median counts, each by its share.
    """
    ratios: dict[str, list[float]] = {COMMITTED: [], LEFT_OUT: []}
    without = {number: _seconds(step) for number, step in enumerate(steps) if step["kind"] == WITHOUT}
    for number, step in enumerate(steps):
        if step["kind"] != WITHOUT:
            near = [without[other] for other in range(number - TURN + 1, number + TURN) if other in without]
            ratios[step["kind"]].append(_seconds(step) / statistics.fmean(near))
    kinds = [kind for kind in ratios.values() if kind]
    return sum(len(kind) * statistics.median(kind) for kind in kinds) / sum(len(kind) for kind in kinds)


def _show(name: str, found: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> None:
    """On the way, for those who wait, and for a look at what took how long."""
    print(f"{name}: {found['state'] / 1e6:.0f} MB, a copy {statistics.median(found['copies']):.3f} s", file=sys.stderr)
    for kind in KINDS:
        of_kind = [step for step in steps if step["kind"] == kind]
        if of_kind:
            parts = {part: statistics.median(step[part] for step in of_kind) for part in PARTS}
            said = ", ".join(f"{part} {seconds * 1e3:.0f} ms" for part, seconds in parts.items())
            print(f"  {len(of_kind):3} steps {kind:9} {said}", file=sys.stderr, flush=True)
