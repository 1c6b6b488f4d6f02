"""Deaths that show first as errors of others: real processes, real sockets, real SIGKILL."""

from __future__ import annotations

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.context import JobContext, default_store_url, open_store

HERE = "sample_jobs.connected"
pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def job(tmp_path, trainer: str, **config) -> RLJobBuilder:
    files = {name: str(tmp_path / name) for name in ("mark", "log")}
    builder = RLJobBuilder().device_per_node(3).config({**files, **config}).trainer(HERE, trainer)
    return builder.restart_budget(backoff_s=0.0)


def found(name: str) -> list[tuple[str, str]]:
    """Of each incident, what was found and how much was restarted."""
    incidents = JobContext.load(open_store(default_store_url()), name).record.incidents
    return [(str(one.kind), str(one.scope)) for one in incidents]


def times_entered(tmp_path) -> int:
    return (tmp_path / "log").read_text().count("fit")


@pytest.mark.parametrize("place", ["update", "save_state"])
def test_the_broken_connections_of_the_survivors_are_part_of_the_death(tmp_path, place):
    builder = job(tmp_path, "Updates", dies_in=place).actor(HERE, "Linked").total(2).failover("role")
    assert builder.build().submit("linked").value == [5, 5]
    assert (tmp_path / "mark").exists()
    assert found("linked") == [("process_died", "role")]
    assert times_entered(tmp_path) == 2


@pytest.mark.parametrize("by_handle", [False, True])
def test_an_error_that_the_death_in_another_role_caused_leads_back_to_the_commit(tmp_path, by_handle):
    """And what ran on the living actor is over before its state is loaded."""
    builder = job(tmp_path, "Broadcasts", by_handle=by_handle, commits=True, late_s=6.0)
    builder = builder.actor(HERE, "Sender").failover("role").rollout(HERE, "Engine").total(2).failover("workload")
    assert builder.build().submit("sends").value == [5]
    assert (tmp_path / "mark").exists()
    assert found("sends") == [("process_died", "workload")]
    assert times_entered(tmp_path) == 2


def test_without_a_commit_the_job_starts_again_and_nothing_counts_twice(tmp_path):
    builder = job(tmp_path, "Broadcasts", by_handle=False, commits=False, late_s=0.1)
    builder = builder.actor(HERE, "Sender").failover("role").rollout(HERE, "Engine").total(2).failover("workload")
    assert builder.build().submit("sends").value == [105]
    assert (tmp_path / "mark").exists()
    assert "job" in [scope for _, scope in found("sends")]
    assert "user_error" not in [kind for kind, _ in found("sends")]


def test_a_death_upstream_of_results_by_reference_is_done_again(tmp_path):
    builder = job(tmp_path, "Joins").actor(HERE, "Sender").failover("role")
    builder = builder.rollout(HERE, "Engine").total(2).failover("workload")
    assert builder.build().submit("joins").value == [[0, 1], [10, 11], [20, 21], [30, 31]]
    assert (tmp_path / "mark").exists()
    assert found("joins") == [("process_died", "workload")]
    assert times_entered(tmp_path) == 1
