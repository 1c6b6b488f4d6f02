"""What `pip install dlrl` gives: everything that a user needs without a clone, in an environment with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(build, cwd=ROOT, check=True, timeout=120)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_has_all_packages_and_no_test(wheel):
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {folder.name for folder in (ROOT / "plugins").glob("*/dlrl_*")}

    assert tops == {"dlrl_core", "dlrl_quickstart", *ours}


def test_each_entry_point_is_in_the_wheel(wheel):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = [*project["scripts"].values(), *project["entry-points"]["dlrl"].values()]
    modules = {target.split(":")[0].replace(".", "/") + ".py" for target in targets}

    assert modules <= set(ZipFile(wheel).namelist())


class Installed:
    """An empty environment with the wheel in it, and a folder with nothing of the clone."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.run("pip", "install", "-q", "-c", str(ROOT / "constraints" / "core.txt"), str(wheel), timeout=400)

    def run(self, command: str, *words: str, timeout: float = 200, **environment: str) -> str:
        """What the command printed; it must end well."""
        inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "RAY_ADDRESS"}}
        done = subprocess.run(
            [str(self.folder / "venv" / "bin" / command), *words],
            cwd=self.folder,
            env={**inherited, "DLRL_HOME": str(self.folder / "home"), **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


@pytest.mark.long
def test_the_commands_that_need_no_cluster_work(installed):
    assert "Usage: dlrl" in installed.run("dlrl", "--help")
    assert "dlrl" in installed.run("dlrl", "doctor")
    assert "verl" in installed.run("dlrl", "frameworks")


@pytest.mark.long
def test_a_launch_script_is_planned_without_its_framework(installed):
    script = ROOT / "examples" / "openrlhf_ppo" / "train_tiny.sh"
    plan = installed.run("dlrl", "plan", "--framework", "openrlhf", "--", "bash", str(script), TINY="/data/tiny")

    assert "5 workloads on 1 node" in plan


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_quickstart_survives_a_kill_and_why_tells_it(installed):
    ran = installed.run("python", "-m", "dlrl_quickstart", "--kill", "actor-1")
    why = installed.run("dlrl", "why", "quickstart")

    assert "sent SIGKILL to 'actor-1'" in ran
    assert float(ran.split(" -> ")[-1].split()[0]) > 0.9
    assert "actor-1" in why
