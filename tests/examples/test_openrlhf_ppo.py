"""The launch script of the demo is a job of five roles, and the two ways to install what it needs are one."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement

from dlrl_core import RLJobBuilder, RoleType

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "openrlhf_ppo" / "train_tiny.sh"


def requirements(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {one.name: one for one in found}


def test_the_launch_script_is_a_job_of_all_five_roles_with_its_environment(monkeypatch):
    monkeypatch.setenv("TINY", "/data/tiny")
    spec = RLJobBuilder().framework("openrlhf").config(["bash", str(SCRIPT)]).build().spec

    assert {role.role: role.total for role in spec.roles} == dict.fromkeys(RoleType, 1)
    assert spec.config.plain()["actor"]["model_name_or_path"] == "/data/tiny/policy"
    assert spec.global_env == {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def test_the_requirements_file_has_the_versions_of_the_constraints():
    constraints = requirements("constraints/openrlhf.txt")
    listed = requirements("requirements/openrlhf-cpu.txt")

    pinned = {name: one.specifier for name, one in listed.items() if one.specifier}
    assert pinned == {name: one.specifier for name, one in constraints.items() if name != "openrlhf"}
    assert (
        f"--no-deps openrlhf{constraints['openrlhf'].specifier}\n"
        in (ROOT / "requirements" / "openrlhf-cpu.txt").read_text()
    )


def test_the_documented_commands_are_those_of_the_requirements_file():
    told = re.findall(r"^#   (.*)$", (ROOT / "requirements" / "openrlhf-cpu.txt").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "how-to" / "run-openrlhf.md").read_text()

    assert "\n".join(["```shell", *told, "```"]) in page
