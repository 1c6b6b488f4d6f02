"""Deaths that show first as errors of others: real processes, real sockets, real SIGKILL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checks import connected, side_by_side

from dlrl_core import RLJobBuilder
from dlrl_core.context import JobContext, default_store_url, open_store

HERE = "sample_jobs.connected"
BROADCASTS: dict[str, dict[str, Any]] = {
    "through-its-group": {"by_handle": False, "commits": True, "late_s": 6.0},
    "through-its-handle": {"by_handle": True, "commits": True, "late_s": 6.0},
    "without-a-commit": {"by_handle": False, "commits": False, "late_s": 0.1},
}
JOBS = (*BROADCASTS, "update", "save_state", "joins")
"""Those that take longest come first; two of them need three of the eight devices each."""
AT_ONCE = 2


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a job went."""

    value: Any
    found: list[tuple[str, str]]
    """Of each incident, what was found and how much was restarted."""
    times_entered: int
    """How often `fit` was entered."""


def builder_of(name: str, folder: Path) -> RLJobBuilder:
    files = {file: str(folder / file) for file in ("mark", "log")}
    if name in ("update", "save_state"):
        builder = RLJobBuilder().commits(every=1).config({**files, "dies_in": name}).trainer(HERE, "Updates")
        builder = builder.actor(HERE, "Linked").total(2).failover("role")
    else:
        trainer = "Broadcasts" if name in BROADCASTS else "Joins"
        builder = RLJobBuilder().commits(every=1).config({**files, **BROADCASTS.get(name, {})}).trainer(HERE, trainer)
        builder = builder.actor(HERE, "Sender").failover("role")
        builder = builder.rollout(HERE, "Engine").total(2).failover("workload")
    return builder.device_per_node(3).restart_budget(backoff_s=0.0)


@pytest.fixture(scope="module")
def done(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All jobs; in each of them a workload was killed."""
    folders = {name: tmp_path_factory.mktemp(name) for name in JOBS}

    def run(name: str) -> Any:
        return builder_of(name, folders[name]).build().submit(name, blocking=False).wait(timeout=120).value

    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        values = side_by_side(JOBS, run, at_once=AT_ONCE)
        assert all((folder / "mark").exists() for folder in folders.values())
        return {name: done_of(name, values[name], folders[name]) for name in JOBS}


def done_of(name: str, value: Any, folder: Path) -> Done:
    incidents = JobContext.load(open_store(default_store_url()), name).record.incidents
    found = [(str(one.kind), str(one.scope)) for one in incidents]
    return Done(value=value, found=found, times_entered=(folder / "log").read_text().count("fit"))


@pytest.mark.parametrize("place", ["update", "save_state"])
def test_the_broken_connections_of_the_survivors_are_part_of_the_death(done, place):
    assert done[place].value == [5, 5]
    assert done[place].found == [("process_died", "role")]
    assert done[place].times_entered == 2


@pytest.mark.parametrize("way", ["through-its-group", "through-its-handle"])
def test_an_error_that_the_death_in_another_role_caused_leads_back_to_the_commit(done, way):
    """And what ran on the living actor is over before its state is loaded."""
    assert done[way].value == [5]
    assert done[way].found == [("process_died", "workload")]
    assert done[way].times_entered == 2


def test_without_a_commit_the_job_starts_again_and_nothing_counts_twice(done):
    assert done["without-a-commit"].value == [105]
    assert "job" in [scope for _, scope in done["without-a-commit"].found]
    assert "user_error" not in [kind for kind, _ in done["without-a-commit"].found]


def test_a_death_upstream_of_results_by_reference_is_done_again(done):
    assert done["joins"].value == [[0, 1], [10, 11], [20, 21], [30, 31]]
    assert done["joins"].found == [("process_died", "workload")]
    assert done["joins"].times_entered == 1
