"""Waiting ends when nothing moves, not after a fixed time."""

from __future__ import annotations

import pytest

from dlrl_core.scheduler import cluster_probe as module
from dlrl_core.scheduler.cluster_probe import Patience, sizes_of


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_what_moves_is_waited_for(clock):
    moving = Patience(lambda: clock[0], still_s=10, most_s=100)
    for _ in range(9):
        clock[0] += 9.5
        assert not moving.is_lost()


def test_what_stands_still_is_given_up_and_the_limit_is_named(clock):
    still = Patience(lambda: "same", still_s=10, most_s=100)
    assert not still.is_lost()
    clock[0] += 9
    assert not still.is_lost()
    clock[0] += 3
    assert still.is_lost()
    assert str(still) == "12 s, and nothing moved for the last 12 s (limit 10 s)"


def test_even_what_moves_has_a_limit(clock):
    moving = Patience(lambda: clock[0], still_s=10, most_s=100)
    clock[0] += 100
    assert moving.is_lost()
    assert str(moving) == "100 s (limit 100 s)"


def test_a_file_that_grows_is_movement(tmp_path):
    log = tmp_path / "worker-1.out"
    log.write_text("a")
    before = sizes_of(tmp_path, "*worker*")
    assert sizes_of(tmp_path, "*worker*") == before
    log.write_text("ab")
    assert sizes_of(tmp_path, "*worker*") != before
