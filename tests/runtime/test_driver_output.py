"""What a driver shows: the output of its own processes, without Ray's messages and without foreign colours."""

from __future__ import annotations

import io

import pytest
from ray._private import worker

from dlrl_core.api.connection import DriverOutput


@pytest.fixture
def output(monkeypatch):
    """Ray's printing is filtered, and what would be printed is collected."""
    printed = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, ignore_prefix: printed.extend(data["lines"]))
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setenv("RAY_COLOR_PREFIX", "0")
    filtered = DriverOutput()
    filtered.filter()
    yield printed
    filtered.restore()


@pytest.mark.parametrize("process", ["raylet", "autoscaler", "gcs_server"])
def test_messages_of_ray_are_not_shown(output, process):
    worker.print_to_stdstream({"pid": process, "lines": ["a worker died"]}, ignore_prefix=False)
    assert output == []


def test_output_of_a_process_is_shown_without_its_colours(output):
    worker.print_to_stdstream({"pid": 7, "lines": ["\x1b[1;31mloss\x1b[0m 0.5"]}, ignore_prefix=False)
    assert output == ["loss 0.5"]


def test_ray_prints_as_before_when_the_driver_leaves(monkeypatch):
    def original(data, ignore_prefix):
        return None

    monkeypatch.setattr(worker, "print_to_stdstream", original)
    monkeypatch.setenv("RAY_COLOR_PREFIX", "0")
    filtered = DriverOutput()
    filtered.filter()
    filtered.filter()
    assert worker.print_to_stdstream is not original
    filtered.restore()
    assert worker.print_to_stdstream is original
