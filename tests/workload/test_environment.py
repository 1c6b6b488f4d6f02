"""What a job may set in the environment of its processes."""

from __future__ import annotations

import os

import pytest

from dlrl_core.workload import process
from dlrl_core.workload.process import ProcessSetup


def test_a_job_does_not_say_where_a_node_keeps_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "given_env", {})
    monkeypatch.setenv("DLRL_MEMORY", "/the/nodes")
    monkeypatch.delenv("MINE", raising=False)

    ProcessSetup(env={"DLRL_MEMORY": "/the/jobs", "MINE": "1"}).set_environment()

    try:
        assert (os.environ["DLRL_MEMORY"], os.environ["MINE"]) == ("/the/nodes", "1")
    finally:
        del os.environ["MINE"]
