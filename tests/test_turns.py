"""Benchmarks in turns: one of two programs runs at any time, with all that it has started."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import psutil
import pytest
from checks import wait_until

from benchmarks.turns import Player, take_turns

TURN_S, TICKS, PERIOD_S = 0.5, 60, 0.05
TICKER = f"""
import os, sys, time
is_parent = os.fork() > 0
if not is_parent:
    with open(sys.argv[1] + ".pid", "w") as out:
        out.write(str(os.getpid()))
with open(sys.argv[1] + str(is_parent), "w", buffering=1) as out:
    for _ in range({TICKS}):
        print(time.time(), file=out)
        time.sleep({PERIOD_S})
if is_parent:
    os.wait()
"""

FAILING = f"""
import os, time
while not (os.path.exists("a.pid") and os.path.getsize("a.pid")):
    time.sleep({PERIOD_S})
raise SystemExit("no such model")
"""


def player(folder: Path, name: str, program: str) -> Player:
    return Player([sys.executable, "-c", program, str(folder / name)], cwd=folder, env={}, log=folder / f"{name}.log")


def ticks(folder: Path, name: str) -> list[float]:
    return sorted(float(line) for path in folder.glob(f"{name}[TF]*") for line in path.read_text().splitlines())


def test_programs_and_what_they_started_run_one_at_a_time(tmp_path):
    starts = [lambda: player(tmp_path, "a", TICKER), lambda: player(tmp_path, "b", TICKER)]

    (one, other), end = take_turns(starts, turn_s=TURN_S)

    marked = sorted([(at, "a") for at in ticks(tmp_path, "a")] + [(at, "b") for at in ticks(tmp_path, "b")])
    turns = [name for name, _ in itertools.groupby(name for _, name in marked)]
    assert len(marked) == 4 * TICKS
    assert len(turns) <= 4 * TICKS * PERIOD_S / TURN_S  # four tickers that ran at once would change places each time
    played_s = one.played_s(other.began, end) + other.played_s(other.began, end)
    assert 0.5 * (end - other.began) <= played_s <= 1.05 * (end - other.began)


def test_a_program_that_fails_ends_the_other_and_is_quoted(tmp_path):
    starts = [lambda: player(tmp_path, "a", TICKER), lambda: player(tmp_path, "b", FAILING)]

    with pytest.raises(RuntimeError, match="no such model"):
        take_turns(starts, turn_s=TURN_S)

    child = int((tmp_path / "a.pid").read_text())
    wait_until(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", "its child has ended"
    )
