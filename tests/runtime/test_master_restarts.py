"""A Master that is killed at the worst moments: its successor finishes what was written, and ends nothing healthy."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import connected, master_pid, wait_until
from planned_submit import submit_with_plan

from dlrl_chaos.chaos import Chaos
from dlrl_core import RLJob, RLJobBuilder
from dlrl_core.api.job_handle import JobHandle
from dlrl_core.context import Incident, JobContext, default_store_url, open_store
from dlrl_core.errors import JobError
from dlrl_core.master.launch import MasterLimits
from dlrl_core.plan import make_plan
from dlrl_core.roles import MASTER
from dlrl_core.scheduler.cluster_probe import view_capacity
from dlrl_core.scheduler.workload_launcher import find_actor

HERE = "sample_jobs.master_deaths"
pytestmark = pytest.mark.usefixtures("ray_2_nodes_8_gpus")


def job(trainer: str, workload: str = "Worker", **config) -> RLJob:
    builder = RLJobBuilder().device_per_node(2).config(config).trainer(HERE, trainer).actor(HERE, workload).total(2)
    return builder.allow_chaos().build()


def context_of(name: str) -> JobContext:
    return JobContext.load(open_store(default_store_url()), name)


def killed_while_it_ends(name: str, handle) -> None:
    """Kill the Master between its decision that the job has ended and the end of the last process."""

    def is_ending() -> bool:
        record = context_of(name).record
        return record.ending is not None and not record.state.is_final

    wait_until(lambda: handle.status().state == "running", "the job runs", 60)
    wait_until(is_ending, "the job ends", 60)
    os.kill(master_pid(), signal.SIGKILL)


def test_a_master_killed_while_the_job_ends_leaves_the_ending_and_the_result_to_the_next(dlrl_home):
    handle = job("FreezesAWorker").submit("ends", blocking=False)
    killed_while_it_ends("ends", handle)
    assert handle.wait(timeout=90).value == {"answer": 42, "padding": ""}
    context = context_of("ends")
    assert (context.record.state, context.record.master_incarnation) == ("finished", 2)
    assert [one.incarnation for one in context.workloads.values()] == [0, 0]
    assert context.record.incidents == ()
    assert not list((dlrl_home / "state").glob("*/*"))


def test_a_result_too_large_for_the_record_is_said_to_be_lost(dlrl_home):
    handle = job("FreezesAWorker", padding=2 * 1024 * 1024).submit("large", blocking=False)
    killed_while_it_ends("large", handle)
    with pytest.raises(JobError, match="job 'large' finished, but what its trainer returned, of type 'dict', is lost"):
        handle.wait(timeout=90)
    assert context_of("large").record.state == "finished"


def test_a_driver_is_told_that_the_store_did_not_take_the_end_of_the_job(dlrl_home, tmp_path, capsys):
    endless = job("RunsUntilTold", enough=str(tmp_path / "enough"))
    plan = make_plan(endless.spec, view_capacity())
    handle = submit_with_plan("full", endless, plan, MasterLimits(last_writes_s=1.0))
    wait_until(lambda: (handle.status().step or 0) > 1, "the job runs", 60)
    Chaos("full").inject("master", "store", seconds=3600)
    (tmp_path / "enough").touch()
    result = handle.wait(timeout=60)
    assert (result.status.state, len(result.value)) == ("finished", 2)
    assert "given up after 1 s, they are lost" in (result.status.degraded or "")
    assert f"dlrl: the record lacks the end of the job: {result.status.degraded}" in capsys.readouterr().err
    assert context_of("full").record.state == "running"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What one job said while its Master could not write, and how it ended."""

    pids: list[int]
    """Of its workloads, at the beginning."""
    incarnations: list[int]
    """Of the Master, after another one had written, after the store had been away, and after an error of its own."""
    incidents: tuple[Incident, ...]
    value: list[int]


@pytest.fixture(scope="module")
def waiting(cluster_2_nodes_8_gpus: str, tmp_path_factory: pytest.TempPathFactory) -> Waiting:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("waits")
    with pytest.MonkeyPatch.context() as patch, connected(cluster_2_nodes_8_gpus):
        patch.setenv("DLRL_HOME", str(home))
        handle = job("RunsUntilTold", enough=str(folder / "enough")).submit("waits", blocking=False)
        wait_until(lambda: (handle.status().step or 0) > 1, "the job runs", 60)
        pids = [one["pid"] for one in handle.status().workloads]
        incarnations = []
        for trouble in (another_writes, store_is_away, error_in_the_master):
            trouble(handle, home, folder)
            incarnations.append(context_of("waits").record.master_incarnation)
        (folder / "enough").touch()
        value = handle.wait(timeout=60).value
        incidents = context_of("waits").record.incidents
    return Waiting(pids=pids, incarnations=incarnations, incidents=incidents, value=value)


def another_writes(handle: JobHandle, home: Path, folder: Path) -> None:
    """Somebody else writes while the Master can't reach the store, as the Master that replaced it would."""
    Chaos("waits").inject("master", "store", seconds=4.0)
    wait_until(lambda: handle.status().degraded, "its writes wait", 30)
    with context_of("waits").change() as change:
        change.event("note", "somebody else has the job", subject="job")
    wait_until(lambda: context_of("waits").record.master_incarnation == 2, "another Master has the job", 60)
    wait_until(lambda: handle.status().degraded is None, "the Master has taken up the job", 60)


def store_is_away(handle: JobHandle, home: Path, folder: Path) -> None:
    """The files of the store are somewhere else when the Master comes back."""
    files, away = [home / f"context.db{end}" for end in ("", "-wal", "-shm")], folder / "away"
    away.mkdir()
    master = master_pid()
    os.kill(master, signal.SIGSTOP)
    there = [file for file in files if file.exists()]
    for file in there:
        file.rename(away / file.name)
    files[0].mkdir()
    os.kill(master, signal.SIGKILL)
    wait_until(lambda: "can't take it up yet" in (handle.status().degraded or ""), "the Master waits for its store", 60)
    files[0].rmdir()
    wait_until(lambda: "has no record of its run" in (handle.status().degraded or ""), "there is no record at all", 60)
    assert not files[0].exists()
    for file in there:
        (away / file.name).rename(file)
    wait_until(lambda: handle.status().degraded is None, "the Master has taken up the job", 60)


def error_in_the_master(handle: JobHandle, home: Path, folder: Path) -> None:
    """It is told of a call to a workload that does not exist."""
    find_actor("waits", MASTER).escalate.remote("ghost-0", "add", 0)
    wait_until(lambda: context_of("waits").record.master_incarnation == 4, "another Master has the job", 60)
    wait_until(lambda: handle.status().view["incidents"][-1]["ready_at"], "it has adopted all processes", 60)


def test_a_master_that_lost_the_record_while_its_writes_waited_vanishes_and_ends_nobody(waiting):
    assert waiting.incarnations[0] == 2
    assert waiting.value == waiting.pids
    assert [one.kind for one in waiting.incidents] == ["master_failed"]


def test_a_master_that_comes_back_without_its_store_waits_for_it_and_ends_nobody(waiting):
    assert waiting.incarnations[1] == 3
    assert waiting.value == waiting.pids


def test_an_error_that_the_master_does_not_know_restarts_it_alone_and_is_an_incident(waiting):
    [incident] = waiting.incidents
    assert waiting.incarnations[2] == 4
    assert waiting.value == waiting.pids
    assert "the master failed at step" in incident.message and "KeyError: 'ghost'" in incident.message
    assert (incident.subject, incident.scope) == ("master", "workload") and incident.ready_at is not None


def test_a_constructor_that_fails_because_another_rank_has_just_died_is_not_the_users_error(tmp_path):
    assert job("DiesOnce", "NeedsRankZero", folder=str(tmp_path)).submit("meets").value == 2
    findings = [one.message for one in context_of("meets").record.incidents]
    assert len(findings) == 2
    assert "workload 'actor-0' died during 'construct'" in findings[1]
    assert (tmp_path / "1-1").exists()
