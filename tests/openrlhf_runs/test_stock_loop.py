"""How OpenRLHF's own loop counts its steps, and what it has done when a step is committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOOP = Path(__file__).parent / "stock_loop.py"
NEVER = 1_000_000


EVEN, MADE_AHEAD = (8, 4, 4, 2, NEVER), (7, 3, 5, 2, NEVER)
EVALUATED = (6, 2, 2, 1, 2)
LOOPS = (EVEN, MADE_AHEAD, EVALUATED)
"""Prompts, batch, how many are generated at once, episodes, steps between evaluations."""


@pytest.fixture(scope="module")
def seen() -> dict[tuple[int, ...], dict[str, Any]]:
    """What each loop told. All in one process: to import OpenRLHF takes long."""
    words = [",".join(map(str, numbers)) for numbers in LOOPS]
    done = subprocess.run([sys.executable, str(LOOP), *words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(LOOPS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("numbers", [EVEN, MADE_AHEAD], ids=["even", "made ahead"])
def test_the_total_is_what_the_loop_comes_to(seen, numbers):
    done = [step for what, step, *_ in seen[numbers]["told"] if what == "done"]
    assert done == list(range(1, seen[numbers]["most_steps"] + 1))


def test_a_step_that_is_evaluated_is_committed_with_what_was_found(seen):
    assert seen[EVALUATED]["told"] == [
        ["began", 0],
        ["done", 1],
        ["committed", 1, float("-inf"), None],
        ["began", 1],
        ["done", 2],
        ["evaluated", 2],
        ["committed", 2, 0.5, 0.5],
        ["began", 2],
        ["done", 3],
        ["committed", 3, 0.5, 0.5],
        ["began", 3],
    ]
