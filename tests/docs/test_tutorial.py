"""The tutorial's files and command, exactly as it prints them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "first-job.md"
FILE = re.compile(r"<!-- file: (\S+) -->\s*```\w*\n(.*?)```", re.DOTALL)
RUN = re.compile(r"<!-- run -->\s*```\w*\n(.*?)```", re.DOTALL)


def test_the_tutorial_runs_from_an_empty_folder(tmp_path, dlrl_home):
    text = TUTORIAL.read_text()
    files = FILE.findall(text)
    commands = RUN.findall(text)
    assert files
    assert commands
    for name, content in files:
        (tmp_path / name).write_text(content)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DLRL_HOME": str(dlrl_home),
    }
    for command in commands:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
