"""A framework alone and under dlrl: how long a step takes, and the start until the first one is done.

Both are alive at once and take turns of seconds, so that what the machine does besides hits both. Steps count from when
both have warmed up until the first one ends. Under dlrl some of them have a commit to copy, as often as the default
budget allows. Of these the median is taken, and of the others, and each counts by its share; without dlrl, it is the
median of all.
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

from benchmarks.committing import CommitsSeen, commits_seen, env_of
from benchmarks.curves import curves
from benchmarks.report import Comparison, report
from benchmarks.turns import Player, take_turns

ROOT = Path(__file__).parents[1]
TURN_S = 2.0
"""Shorter than the 3 s that dlrl waits for a reservation, and for the last words of workloads: no pause ends it."""
WARM_UP = 4
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
    rounds: int = 2
    """How often both are run, for each size; each of them is the first in turn."""


@dataclass(frozen=True, kw_only=True)
class Times:
    start_s: float
    left_out_s: list[float]
    """Of the steps without a commit to copy."""
    committed_s: list[float]
    pace: str = ""
    """How often steps were committed, and why."""

    @property
    def step_s(self) -> float:
        kinds = [kind for kind in (self.left_out_s, self.committed_s) if kind]
        return sum(len(kind) * statistics.median(kind) for kind in kinds) / self.steps

    @property
    def steps(self) -> int:
        return len(self.left_out_s) + len(self.committed_s)

    @property
    def commits(self) -> str:
        return f"commits: {len(self.committed_s)} in {self.steps} steps; {self.pace}" if self.pace else ""

    def __str__(self) -> str:
        """For those who wait, and for a look at the noise."""
        kinds = (self.left_out_s, "without a commit"), (self.committed_s, "with one")
        medians = [f"{len(kind)} steps of {statistics.median(kind):.3f} s {what}" for kind, what in kinds if kind]
        mean_s = statistics.fmean([*self.left_out_s, *self.committed_s])
        return f"start {self.start_s:.1f} s; {', '.join(medians)}; mean {mean_s:.3f} s; {self.pace}"


def compare(framework: Framework) -> None:
    """Run both sides with models of each size, and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(framework.words), action="append", help="a size; all, if none is given")
    sizes = parser.parse_args().model or list(framework.words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nobody is left behind, stopped
    report([one for size in sizes for one in _compared(framework, size)], ours="dlrl", theirs="stock")


def _compared(framework: Framework, size: str) -> list[Comparison]:
    found: dict[str, list[Times]] = {side: [] for side in framework.sides}
    for number in range(framework.rounds):
        for side, times in _round(framework, size, sorted(framework.sides, reverse=bool(number % 2))).items():
            found[side].append(times)
            print(f"{size}, {side}: {times}", file=sys.stderr, flush=True)
    ours, theirs = found["dlrl"], found["stock"]
    if not any(times.committed_s for times in ours):
        sys.exit(f"{size}: none of the steps that count was committed, so they say nothing of commits; {ours[-1].pace}")
    steps = [[times.step_s for times in side] for side in (ours, theirs)]
    starts = [[times.start_s for times in side] for side in (ours, theirs)]
    note = "; ".join(times.commits for times in ours)
    return [
        Comparison(name=f"{size} step", ours_s=steps[0], theirs_s=steps[1], bar=STEP_BAR, note=note),
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
        logged = [_logged(folder / side, framework.tag) for side in order]
        since = max(at for steps in logged for _, at in steps[WARM_UP : WARM_UP + 1])
        return {
            side: _times(player, steps, commits_seen(folder / side), since, end)
            for side, player, steps in zip(order, players, logged, strict=True)
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
        **env_of(out),
    }
    return Player(
        [sys.executable, "-m", framework.sides[side], *framework.words[size](folder / "models", out)],
        cwd=ROOT,
        env={**os.environ, **_ENV, **told},
        log=out / "log",
    )


def _logged(out: Path, tag: str) -> list[tuple[int, float]]:
    """Each step, and when it ended."""
    logged = [(step, at) for step, _, at in curves(out)[tag]]
    if len(dict(logged)) < len(logged):
        sys.exit(f"steps were done again, so their times mean nothing: {[step for step, _ in logged]}")
    return logged


def _times(
    player: Player, logged: list[tuple[int, float]], commits: CommitsSeen | None, since: float, end: float
) -> Times:
    """What is committed after a step is copied during the next one."""
    kinds: dict[bool, list[float]] = {False: [], True: []}
    for (step, before), (_, after) in itertools.pairwise(logged):
        if since <= before and after <= end:
            kinds[commits is not None and step in commits.steps].append(player.played_s(before, after))
    return Times(
        start_s=player.played_s(player.began, logged[0][1]),
        left_out_s=kinds[False],
        committed_s=kinds[True],
        pace=commits.pace if commits else "",
    )
