"""What goes wrong in other ways: hangs, errors that repeat, crash loops, trainers without commits."""

from __future__ import annotations

import pytest
from checks import wait_until

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import JobFailedError

HERE = "sample_jobs.mishaps"
pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def job(
    tmp_path, method: str, *, cls: str = "Committed", scope: str = "role", hang_limit: float | None = None, **config
) -> RLJob:
    files = {name: str(tmp_path / name) for name in ("mark", "log", "ledger")}
    builder = RLJobBuilder().device_per_node(2).config({**files, "method": method, **config}).trainer(HERE, "Steps")
    builder = builder.actor(HERE, cls).total(2).failover(scope).allow_chaos()
    builder = builder.hang_limit(hang_limit) if hang_limit else builder
    return builder.restart_budget(workload=2, role=2, job=2, backoff_s=0.0).build()


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def log_of(tmp_path) -> list[str]:
    return (tmp_path / "log").read_text().split()


def scopes_of(name: str) -> list[str]:
    return [str(one.scope) for one in context_of(name).record.incidents]


def test_a_restarted_role_enters_fit_again_at_the_first_step_that_was_not_committed(tmp_path):
    value = job(tmp_path, "die_once").submit("back").value
    assert value == {"counts": [4, 4], "progress": {"counts": [4, 4]}, "step": 3}
    assert log_of(tmp_path) == ["init", "fit", "fit"]


def test_without_commits_the_whole_job_starts_again(tmp_path):
    """The seed's Global Failover: everything restarts, `init` and `fit` again."""
    value = job(tmp_path, "die_once", cls="Counter", scope="job", commits=False).submit("global").value
    assert value["counts"] == [4, 4]
    assert log_of(tmp_path) == ["init", "fit", "init", "fit"]
    assert [one.incarnation for one in context_of("global").workloads.values()] == [1, 1]


def test_an_error_that_comes_again_at_the_same_step_stops_the_job_with_the_first_cause(tmp_path):
    with pytest.raises(JobFailedError, match="raised ValueError: the data is bad in 'raise_at_two' at step 3"):
        job(tmp_path, "raise_at_two").submit("repeats")
    assert scopes_of("repeats") == ["role", "stop"]
    assert context_of("repeats").record.progress.commit_json is not None


def test_an_error_that_does_not_come_again_is_survived(tmp_path):
    assert job(tmp_path, "raise_once").submit("transient").value["counts"] == [4, 4]
    assert scopes_of("transient") == ["role"]


def test_a_crash_loop_ends_with_the_first_cause_when_the_budget_is_spent(tmp_path):
    with pytest.raises(JobFailedError, match="workload 'actor-.' died during 'die_always'"):
        job(tmp_path, "die_always", cls="Counter", scope="workload").submit("loops")
    assert set(scopes_of("loops")) == {"workload", "job", "stop"}
    assert scopes_of("loops")[-1] == "stop"


def test_a_call_that_must_not_be_replayed_leads_back_to_the_commit_instead(tmp_path):
    """The ledger has the step twice, because the trainer did it again knowingly; the state counts it once."""
    value = job(tmp_path, "charge", cls="Counter", scope="workload").submit("charges").value
    assert value["step"] == 3
    assert "role" in scopes_of("charges")
    assert log_of(tmp_path) == ["init", "fit", "fit"]


def test_a_hung_call_is_ended_with_its_stacks_in_the_incident(tmp_path):
    handle = job(tmp_path, "add", cls="Counter", scope="workload", hang_limit=2.0, steps=40, pause_s=0.1).submit(
        "hangs", blocking=False
    )
    wait_until(lambda: (handle.status().step or 0) > 2, "two steps are done", 60)
    Chaos("hangs").inject("actor-1", "hang")
    assert handle.wait(timeout=90).value["step"] == 39
    [hung] = context_of("hangs").record.incidents
    assert hung.kind == "hung" and hung.ready_at is not None
    assert "its call 'add' has run for" in hung.message and "(limit 2 s)" in hung.message
    assert "carry_out" in hung.stacks
    assert [one.incarnation for one in context_of("hangs").workloads.values()] == [0, 1]


def test_a_trainer_that_is_slowed_down_is_left_alone(tmp_path):
    handle = job(tmp_path, "add", steps=6, pause_s=0.1).submit("slow", blocking=False)
    wait_until(lambda: (handle.status().step or 0) > 1, "a step is done", 60)
    Chaos("slow").inject("actor-0", "slow", seconds=1.5)
    assert handle.wait(timeout=60).value["counts"] == [12, 12]
    assert scopes_of("slow") == []
