"""A framework alone and under dlrl, in turns: how long a step takes, and the start until the first one is done."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time

from benchmarks.curves import curves
from benchmarks.report import Comparison, report

ROOT = Path(__file__).parents[1]
ROUNDS = 3
WARM_UP = 4
STEP_BAR, START_BAR = 1.03, 1.15
_ENV = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What is run, and where it says when a step was done."""

    make_tiny: str
    """The script that makes models and data in a folder."""
    sides: Mapping[str, str]
    """The module of 'dlrl' and of 'stock'."""
    words: Callable[[Path, Path], list[str]]
    """What the user says, for a folder of models and one for results; tensorboard's files go below the latter."""
    tag: str
    """A number that is logged once a step."""


@dataclass(frozen=True)
class Times:
    start_s: float
    step_s: float


def compare(framework: Framework) -> None:
    """Run both sides in turns, and report."""
    found: dict[str, list[Times]] = {side: [] for side in framework.sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make = [sys.executable, str(ROOT / framework.make_tiny), str(folder / "tiny")]
        subprocess.run(make, check=True, capture_output=True)
        for number in range(ROUNDS):
            for side in sorted(framework.sides, reverse=bool(number % 2)):
                times = _run(framework, side, folder / "tiny", folder / f"{side}{number}")
                found[side].append(times)
                print(f"{side}: start {times.start_s:.1f} s, step {times.step_s:.3f} s", file=sys.stderr, flush=True)
    ours, theirs = found["dlrl"], found["stock"]
    steps = [one.step_s for one in ours], [one.step_s for one in theirs]
    starts = [one.start_s for one in ours], [one.start_s for one in theirs]
    report(
        [
            Comparison(name="step", ours_s=steps[0], theirs_s=steps[1], bar=STEP_BAR),
            Comparison(name="start", ours_s=starts[0], theirs_s=starts[1], bar=START_BAR),
        ],
        ours="dlrl",
        theirs="stock",
    )


def _run(framework: Framework, side: str, assets: Path, out: Path) -> Times:
    """One run of one side, in processes of its own. vLLM leaves its sockets behind, so it has a folder for them."""
    folder = str(assets.parent)
    told = {"DLRL_HOME": str(out / "home"), "TENSORBOARD_DIR": str(out), "TMPDIR": folder, "VLLM_RPC_BASE_PATH": folder}
    began = time()
    done = subprocess.run(
        [sys.executable, "-m", framework.sides[side], *framework.words(assets, out)],
        cwd=ROOT,
        env={**os.environ, **_ENV, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    ends = [at for _, _, at in curves(out)[framework.tag]]
    steps = [after - before for before, after in itertools.pairwise(ends)]
    return Times(start_s=ends[0] - began, step_s=statistics.median(steps[WARM_UP:]))
