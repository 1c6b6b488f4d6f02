"""Puts what the commands really print into README.md: python -m tools.pictures

A block of the README that follows `<!-- picture: NAME -->` is replaced. Runs the quickstart, which takes half a minute.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BIN = Path(sys.executable).parent
PLAN = "dlrl plan --framework openrlhf -- bash examples/openrlhf_ppo/train_tiny.sh"
KILL = "python -m dlrl_quickstart --kill actor-1"
WHY = "dlrl why quickstart"


def printed(command: str, environment: Mapping[str, str]) -> str:
    """What a command prints; its messages and progress, which go to stderr, are not in it."""
    name, *words = command.split()
    path = os.pathsep.join([str(ROOT / "examples" / "quickstart"), os.environ.get("PYTHONPATH", "")])
    told = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "TINY": "tiny", **environment}
    call = [str(BIN / name), *words]
    return subprocess.run(call, cwd=ROOT, env=told, stdout=subprocess.PIPE, text=True, check=True).stdout


def plan() -> str:
    """Where each process would be, and what its death restarts; without what follows: the size of a commit, for which
    the models must be there, and the table, which has the same places."""
    picture, *_ = re.split(r"^state of a commit|^ workload +node ", printed(PLAN, {}), maxsplit=1, flags=re.MULTILINE)
    return f"$ {PLAN}\n{picture}"


def why() -> str:
    """The account of a run that lost an actor."""
    with tempfile.TemporaryDirectory() as home:
        printed(KILL, {"DLRL_HOME": home})
        return f"$ {KILL}\n$ {WHY}\n{printed(WHY, {'DLRL_HOME': home})}"


def with_picture(text: str, name: str, picture: str) -> str:
    lines = "\n".join(line.rstrip() for line in picture.strip().splitlines())
    block = re.compile(rf"(<!-- picture: {name} -->\n```text\n).*?(\n```)", re.DOTALL)
    replaced, count = block.subn(lambda found: f"{found[1]}{lines}{found[2]}", text)
    if count != 1:
        sys.exit(f"{README.name} has {count} blocks for the picture '{name}', not one")
    return replaced


def main() -> None:
    text = with_picture(README.read_text(), "plan", plan())
    README.write_text(with_picture(text, "why", why()))


if __name__ == "__main__":
    main()
