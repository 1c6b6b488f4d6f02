"""The README's pictures and its job are those that a reader gets."""

from __future__ import annotations

import re
from pathlib import Path

from dlrl_quickstart.job import build
from tools import pictures

README = (Path(__file__).parents[2] / "README.md").read_text()
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_picture_of_a_plan_is_what_the_command_prints():
    assert pictures.with_picture(README, "plan", pictures.plan()) == README


def test_the_picture_of_a_death_is_that_of_its_commands():
    shown = README.partition("<!-- picture: why -->\n```text\n")[2].partition("```")[0]

    assert shown.startswith(f"$ {pictures.KILL}\n$ {pictures.WHY}\n")
    assert "job 'quickstart' finished at step 60/60" in shown and "first cause: workload 'actor-1' died" in shown
    assert "→ scope 'role': that is what 'actor-1' declares to survive" in shown


def test_the_job_is_that_of_the_quickstart():
    [code] = [block for block in PYTHON.findall(README) if "RLJobBuilder()" in block]
    names: dict[str, object] = {"__name__": "readme"}
    exec(code, names)

    assert names["job"].spec == build().spec
