"""A shell for all tests of a module; and machines for the doctor, on which nothing is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import packaging.requirements  # noqa: F401 - a bare machine hides everything that is installed here
import pytest
from bare_machine import BareMachine
from cli_shell import Shell, new_shell

from dlrl_vllm import framework_install


@pytest.fixture(scope="module")
def module_shell() -> Iterator[Shell]:
    with new_shell() as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BareMachine:
    """Without a GPU."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(framework_install, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(framework_install, "_DEVICES", tmp_path)
    return BareMachine(site)


@pytest.fixture
def gpu_machine(machine: BareMachine, tmp_path: Path) -> BareMachine:
    (tmp_path / "version").touch()
    (tmp_path / "nvidia0").touch()
    return machine
