"""A shell for each test, or for all tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from checks import short_temp_folder
from cli_shell import Shell


def _shell() -> Iterator[Shell]:
    folder = short_temp_folder()
    (folder / "t").mkdir()
    yield Shell(folder)
    shutil.rmtree(folder)


@pytest.fixture
def shell() -> Iterator[Shell]:
    yield from _shell()


@pytest.fixture(scope="module")
def module_shell() -> Iterator[Shell]:
    yield from _shell()
