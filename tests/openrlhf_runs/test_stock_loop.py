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


def run_loop(*numbers: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(LOOP), *map(str, numbers)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("prompts", "batch", "generated", "episodes"), [(8, 4, 4, 2), (7, 3, 5, 2)], ids=["even", "made ahead"]
)
def test_the_total_is_what_the_loop_comes_to(prompts, batch, generated, episodes):
    seen = run_loop(prompts, batch, generated, episodes, NEVER)

    done = [step for what, step, *_ in seen["told"] if what == "done"]
    assert done == list(range(1, seen["most_steps"] + 1))


def test_a_step_that_is_evaluated_is_committed_with_what_was_found():
    told = run_loop(6, 2, 2, 1, 2)["told"]

    assert told == [
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
