"""What goes wrong in other ways: hangs, errors that repeat, crash loops, trainers without commits."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from checks import connected, side_by_side, wait_until

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import JobContext, default_store_url, open_store
from dlrl_core.errors import JobFailedError
from dlrl_core.workload.state_keeper import Commit

HERE = "sample_jobs.mishaps"
JOBS: dict[str, dict[str, Any]] = {
    "back": {"method": "die_once"},
    "global": {"method": "die_once", "cls": "Counter", "scope": "job", "commits": False, "total": 1},
    "repeats": {"method": "raise_at_two", "total": 1},
    "transient": {"method": "raise_once", "total": 1},
    "loops": {"method": "die_always", "cls": "Counter", "scope": "workload", "total": 1, "restarts": 1},
    "no-memory": {"method": "die_once", "cls": "NoMemoryOnce"},
    "never-again": {"method": "die_once", "cls": "NoMemoryAgain", "total": 1, "restarts": 1},
    "charges": {"method": "charge", "cls": "Counter", "scope": "workload", "total": 1},
    "unseen": {"method": "raise_at_two", "trainer": "DropsReferences", "total": 1},
    "changed": {"method": "echo", "trainer": "ChangesBatches", "cls": "Counter", "scope": "workload"},
    "waits": {"method": "die_once", "trainer": "WaitsForAThread", "total": 1},
    "freezes": {"method": "add", "trainer": "FreezesOnce", "total": 1, "silence_limit": 3.0},
}
"""Those that nobody has to disturb."""
AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended."""

    value: Any
    error: JobFailedError | None
    log: list[str]
    scopes: list[str]
    context: JobContext


def job(
    folder: Path,
    method: str,
    *,
    trainer: str = "Steps",
    cls: str = "Committed",
    scope: str = "role",
    total: int = 2,
    restarts: int = 2,
    hang_limit: float | None = None,
    silence_limit: float = 30.0,
    **config,
) -> RLJob:
    files = {name: str(folder / name) for name in ("mark", "log", "ledger")}
    builder = (
        RLJobBuilder()
        .device_per_node(2)
        .config({**files, "method": method, **config})
        .commits(every=1)
        .trainer(HERE, trainer)
    )
    builder = builder.actor(HERE, cls).total(total).failover(scope).allow_chaos()
    builder = builder.hang_limit(hang_limit) if hang_limit else builder
    builder = builder.restart_budget(workload=restarts, role=restarts, job=restarts, backoff_s=0.0)
    return builder.silence_limit(silence_limit).build()


@pytest.fixture(scope="module")
def ended(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    folders = {name: tmp_path_factory.mktemp(name) for name in JOBS}

    def run(name: str) -> Ended:
        handle = job(folders[name], **JOBS[name]).submit(name, blocking=False)
        return ending_of(name, handle, folders[name])

    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(tmp_path_factory.mktemp("home")))
        return side_by_side(JOBS, run, at_once=AT_ONCE)


def ending_of(name: str, handle: JobHandle, folder: Path) -> Ended:
    value, error = None, None
    try:
        value = handle.wait(timeout=120).value
    except JobFailedError as failure:
        error = failure
    log = (folder / "log").read_text().split()
    return Ended(value=value, error=error, log=log, scopes=scopes_of(name), context=context_of(name))


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def scopes_of(name: str) -> list[str]:
    return [str(one.scope) for one in context_of(name).record.incidents]


def test_a_restarted_role_enters_fit_again_at_the_first_step_that_was_not_committed(ended):
    back = ended["back"]
    assert back.value == {"counts": [4, 4], "progress": {"counts": [4, 4]}, "step": 3}
    assert back.log == ["init", "fit", "fit"]


def test_without_commits_the_whole_job_starts_again(ended):
    """The seed's Global Failover: everything restarts, `init` and `fit` again."""
    assert ended["global"].value["counts"] == [4]
    assert ended["global"].log == ["init", "fit", "init", "fit"]
    assert [one.incarnation for one in ended["global"].context.workloads.values()] == [1]


def test_an_error_that_comes_again_at_the_same_step_stops_the_job_with_the_first_cause(ended):
    repeats = ended["repeats"]
    assert "raised ValueError: the data is bad in 'raise_at_two' at step 3" in str(repeats.error)
    assert repeats.scopes == ["role", "stop"]
    assert repeats.context.record.progress.commit_json is not None


def test_an_error_that_does_not_come_again_is_survived(ended):
    assert ended["transient"].value["counts"] == [4]
    assert ended["transient"].scopes == ["role"]


def test_a_crash_loop_ends_with_the_first_cause_when_the_budget_is_spent(ended):
    assert re.search("workload 'actor-0' died during 'die_always'", str(ended["loops"].error))
    assert set(ended["loops"].scopes) == {"workload", "job", "stop"}
    assert ended["loops"].scopes[-1] == "stop"


def test_a_call_that_must_not_be_replayed_leads_back_to_the_commit_instead(ended):
    """The ledger has the step twice, because the trainer did it again knowingly; the state counts it once."""
    assert ended["charges"].value["step"] == 3
    assert "role" in ended["charges"].scopes
    assert ended["charges"].log == ["init", "fit", "fit"]


def test_an_error_of_a_call_that_nobody_awaited_fails_the_commit(ended):
    unseen = ended["unseen"]
    assert "role 'actor' rank 0 raised ValueError: the data is bad in 'raise_at_two' at step 3" in str(unseen.error)
    assert unseen.context.record.progress.commits is not None
    assert Commit.from_json(unseen.context.record.progress.commit_json).step == 1


def test_a_replay_sends_the_batch_as_it_was(ended):
    assert ended["changed"].value == [[[1], [2]], [[3], [4]]]
    assert ended["changed"].scopes == ["workload"]


def test_a_main_loop_that_waits_for_a_thread_which_has_met_a_death_begins_again_in_a_new_process(ended):
    assert ended["waits"].value == [4]
    assert ended["waits"].log == ["init", "fit", "init", "fit"]


def test_a_trainer_whose_process_is_frozen_is_known_by_its_silence_and_replaced(ended):
    freezes = ended["freezes"]
    assert freezes.value == [4] and freezes.log == ["init", "fit", "init", "fit"]
    [hung] = freezes.context.record.incidents
    assert (hung.kind, hung.subject, hung.restarts) == ("hung", "trainer", ("trainer",))
    assert re.search("the trainer hangs at step .: .*, does not answer, and its process is stopped", hung.message)


def test_a_constructor_that_raises_on_a_restart_is_tried_again(ended):
    assert ended["no-memory"].value["counts"] == [4, 4]
    kinds = [one.kind for one in ended["no-memory"].context.record.incidents]
    assert kinds[0] == "process_died" and set(kinds[1:]) == {"start_failed"}
    assert all(one.ready_at for one in ended["no-memory"].context.record.incidents)


def test_a_constructor_that_always_raises_on_a_restart_ends_the_job_with_its_error_when_the_budget_is_spent(ended):
    again = ended["never-again"]
    assert "MemoryError: CUDA out of memory" in str(again.error)
    assert again.error.cause.type_name == "MemoryError"
    assert again.scopes == ["role", "job", "stop"]


@pytest.mark.usefixtures("ray_2_nodes_8_gpus")
def test_a_process_that_is_frozen_for_good_is_known_by_its_silence_and_replaced(tmp_path):
    """Its role has no hang_limit. The process that replaces it on its node ends it first."""
    handle = job(tmp_path, "add", scope="workload", silence_limit=3.0, steps=400, pause_s=0.05).submit(
        "frozen", blocking=False
    )
    wait_until(lambda: (handle.status().step or 0) > 2, "two steps are done", 60)
    frozen, other = (one["pid"] for one in handle.status().workloads)
    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: handle.status().workloads[0]["restarts"] == 1, "it is restarted", 30)
    wait_until(lambda: handle.status().workloads[0]["state"] == "ready", "it is ready", 30)
    assert not psutil.pid_exists(frozen) and handle.status().workloads[1]["pid"] == other
    handle.stop()
    [hung] = context_of("frozen").record.incidents
    assert hung.kind == "hung" and hung.subject == "actor-0"
    assert re.search("it sent no report for . s, does not answer, and its process is stopped", hung.message)


@pytest.mark.usefixtures("ray_2_nodes_8_gpus")
def test_a_hung_call_is_ended_with_its_stacks_in_the_incident(tmp_path):
    handle = job(tmp_path, "add", cls="Counter", scope="workload", hang_limit=2.0, steps=25, pause_s=0.1).submit(
        "hangs", blocking=False
    )
    wait_until(lambda: (handle.status().step or 0) > 2, "two steps are done", 60)
    Chaos("hangs").inject("actor-1", "hang")
    assert handle.wait(timeout=90).value["step"] == 24
    [hung] = context_of("hangs").record.incidents
    assert hung.kind == "hung" and hung.ready_at is not None
    assert "its call 'add' has run for" in hung.message and "(limit 2 s)" in hung.message
    assert "carry_out" in hung.stacks
    assert [one.incarnation for one in context_of("hangs").workloads.values()] == [0, 1]


@pytest.mark.usefixtures("ray_2_nodes_8_gpus")
def test_a_trainer_that_is_slowed_down_is_left_alone(tmp_path):
    handle = job(tmp_path, "add", steps=6, pause_s=0.1).submit("slow", blocking=False)
    wait_until(lambda: (handle.status().step or 0) > 1, "a step is done", 60)
    Chaos("slow").inject("actor-0", "slow", seconds=1.5)
    assert handle.wait(timeout=60).value["counts"] == [12, 12]
    assert scopes_of("slow") == []
