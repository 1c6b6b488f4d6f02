"""Stores in a place of their own, closed when the test ends. What holds for a store is tested with each kind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checks import short_temp_folder
from redis_server import RedisServer

from dlrl_core.context import OutageLimits, Store, open_store
from dlrl_core.context.store import sqlite_url
from dlrl_sqlite.store import SqliteStore

KINDS = ["sqlite", "redis"]


@pytest.fixture(autouse=True)
def much_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is slow for a moment is no outage, unless a test says so."""
    monkeypatch.setattr("dlrl_core.context.job_context._LIMITS", OutageLimits(patience_s=30))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Shared by tests that do it no harm."""
    with RedisServer(short_temp_folder()) as server:
        yield server


@pytest.fixture
def own_redis_server() -> Iterator[RedisServer]:
    """To be killed, stopped and emptied."""
    with RedisServer(short_temp_folder()) as server:
        yield server


@pytest.fixture(scope="session", params=KINDS)
def new_store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Gives the URL of an empty store each time it is called."""
    if request.param == "sqlite":
        return lambda: sqlite_url(tmp_path_factory.mktemp("store") / "home" / "context.db")
    server: RedisServer = request.getfixturevalue("redis_server")
    return lambda: f"{server.url}?prefix={secrets.token_hex(4)}:"


@pytest.fixture
def store_url(new_store_url: Callable[[], str]) -> str:
    return new_store_url()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with open_store(store_url) as opened:
        yield opened


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "context.db"


@pytest.fixture
def sqlite_store(store_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(store_path) as opened:
        yield opened
