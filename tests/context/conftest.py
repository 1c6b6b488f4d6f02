"""Stores in a directory of their own, closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrl_core.context import SqliteStore


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "context.db"


@pytest.fixture
def store(store_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(store_path) as opened:
        yield opened
