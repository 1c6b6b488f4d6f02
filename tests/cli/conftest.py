"""A shell for each test, or for all tests of a module."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_shell import Shell


def _shell() -> Iterator[Shell]:
    folder = Path(tempfile.mkdtemp(prefix="clit-", dir="/tmp"))
    (folder / "t").mkdir()
    yield Shell(folder)
    shutil.rmtree(folder)


@pytest.fixture
def shell() -> Iterator[Shell]:
    yield from _shell()


@pytest.fixture(scope="module")
def module_shell() -> Iterator[Shell]:
    yield from _shell()
