"""The quickstart really learns, and its two forms are one job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlrl_core import RLJobBuilder
from dlrl_quickstart.job import build

ROOT = Path(__file__).parents[2]
JOB_FILE = ROOT / "examples" / "quickstart" / "quickstart.yaml"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What `make quickstart` runs, as JSON."""
    import os

    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "dlrl"), "run", str(JOB_FILE), "--json"],
        cwd=ROOT,
        env={**os.environ, "DLRL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_reward_goes_up(outcome):
    rewards = outcome["value"]["rewards"]
    assert len(rewards) == 60
    assert rewards[0] < 0.2
    assert min(rewards[-10:]) > 0.9


def test_builder_and_job_file_say_the_same():
    assert build().spec == RLJobBuilder.from_file(JOB_FILE).build().spec


def test_all_five_roles_take_part(outcome):
    assert [str(role.role) for role in build().spec.roles] == [
        "actor",
        "rollout",
        "reference",
        "reward",
        "critic",
    ]
    assert outcome["state"] == "finished"
