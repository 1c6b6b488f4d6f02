"""A framework alone and under dlrl: how long a step takes, and the start until the first one is done.

Both are alive at once and take turns of seconds, so that what the machine does besides hits both.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curves import curves
from benchmarks.report import Comparison, report
from benchmarks.turns import Player, take_turns

ROOT = Path(__file__).parents[1]
ROUNDS = 2
TURN_S = 2.0
"""Shorter than the 3 s that dlrl waits for a reservation, and for the last words of workloads: no pause ends it."""
WARM_UP = 4
OWN_BUDGET = 0.03 / 2
"""What commits may take of the time of a job under dlrl: the default, of its own turns."""
STEP_BAR, START_BAR = 1.03, 1.15
_ENV = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "RAY_AUTH_MODE": "disabled"}


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What is run, and where it says when a step was done."""

    make_tiny: str
    """The script that makes models and data in a folder."""
    sides: Mapping[str, str]
    """The module of 'dlrl' and of 'stock'."""
    words: Mapping[str, Callable[[Path, Path], list[str]]]
    """By size of the model: what the user says, for a folder of models and one for results.

    Tensorboard's files go below the latter."""
    tag: str
    """A number that is logged once a step."""


@dataclass(frozen=True)
class Times:
    start_s: float
    steps_s: list[float]


def compare(framework: Framework) -> None:
    """Run both sides with models of each size, once with each of them as the first, and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(framework.words), action="append", help="a size; all, if none is given")
    sizes = parser.parse_args().model or list(framework.words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nobody is left behind, stopped
    report([one for size in sizes for one in _compared(framework, size)], ours="dlrl", theirs="stock")


def _compared(framework: Framework, size: str) -> list[Comparison]:
    found: dict[str, list[Times]] = {side: [] for side in framework.sides}
    for number in range(ROUNDS):
        for side, times in _round(framework, size, sorted(framework.sides, reverse=bool(number % 2))).items():
            found[side].append(times)
            mean, median = statistics.fmean(times.steps_s), statistics.median(times.steps_s)
            steps_said = f"{len(times.steps_s)} steps of {mean:.3f} s, median {median:.3f} s"
            said = f"{size}, {side}: start {times.start_s:.1f} s, {steps_said}"
            print(said, file=sys.stderr, flush=True)
    ours, theirs = found["dlrl"], found["stock"]
    # The mean: a median would not see commits, which come with less than every second step.
    steps = [[statistics.fmean(times.steps_s) for times in side] for side in (ours, theirs)]
    starts = [[times.start_s for times in side] for side in (ours, theirs)]
    return [
        Comparison(name=f"{size} step", ours_s=steps[0], theirs_s=steps[1], bar=STEP_BAR),
        Comparison(name=f"{size} start", ours_s=starts[0], theirs_s=starts[1], bar=START_BAR),
    ]


def _round(framework: Framework, size: str, order: list[str]) -> dict[str, Times]:
    """One run of each side, in turns."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        make = [sys.executable, str(ROOT / framework.make_tiny), str(folder / "models"), "--size", size]
        subprocess.run(make, check=True, capture_output=True)
        starts = [functools.partial(_start, framework, size, side, folder) for side in order]
        players, end = take_turns(starts, turn_s=TURN_S)
        return {
            side: _times(player, folder / side, framework.tag, end) for side, player in zip(order, players, strict=True)
        }


def _start(framework: Framework, size: str, side: str, folder: Path) -> Player:
    """vLLM leaves its sockets behind, so it has a folder for them."""
    out = folder / side
    out.mkdir()
    told = {
        "DLRL_HOME": str(out / "home"),
        "STOCK_TEMP": str(folder / "ray"),
        "TENSORBOARD_DIR": str(out),
        "TMPDIR": str(out),
        "VLLM_RPC_BASE_PATH": str(out),
    }
    return Player(
        [sys.executable, "-m", framework.sides[side], *framework.words[size](folder / "models", out)],
        cwd=ROOT,
        env={**os.environ, **_ENV, **told},
        log=out / "log",
    )


def _times(player: Player, out: Path, tag: str, end: float) -> Times:
    """As long as there were two to take turns."""
    logged = curves(out)[tag]
    if len({step for step, _, _ in logged}) < len(logged):
        sys.exit(f"steps were done again, so their times mean nothing: {[step for step, _, _ in logged]}")
    ends = [at for _, _, at in logged if at <= end]
    steps = [player.played_s(before, after) for before, after in itertools.pairwise(ends)]
    return Times(start_s=player.played_s(player.began, ends[0]), steps_s=steps[WARM_UP:])
