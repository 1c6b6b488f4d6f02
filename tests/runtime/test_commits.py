"""Commits of real jobs: state that is lost, storage that fails and heals, steps that a budget leaves out."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from checks import wait_until

from dlrl_core import RLJobBuilder
from dlrl_core.context import FindingKind, JobContext, default_store_url, open_store
from dlrl_core.errors import DlrlError, JobFailedError
from dlrl_state.run_memory import run_folders

HERE = "sample_jobs.keeping"


def builder(tmp_path: Path, **config) -> RLJobBuilder:
    config = {"enough": str(tmp_path / "enough"), **config}
    made = RLJobBuilder().device_per_node(2).config(config).trainer(HERE, "KeepingTrainer")
    return made.actor(HERE, "Keeper").total(2).failover("role").restart_budget(backoff_s=0.0)


def commits_of(handle) -> dict:
    return handle.status().view["progress"]["commits"] or {}


def committed(handle) -> int:
    return handle.status().view["progress"]["committed_step"] or 0


def record_of(name: str):
    return JobContext.load(open_store(default_store_url()), name)


def pid_of(handle, name: str) -> int:
    return next(one["pid"] for one in handle.status().workloads if one["name"] == name)


def test_a_rank_whose_state_was_lost_stops_the_job_by_name_and_never_leads_to_the_first_step(
    ray_2_nodes_8_gpus, tmp_path
):
    job = builder(tmp_path).commits(every=1, state_folder=str(tmp_path / "durable")).build()
    handle = job.submit("lost", blocking=False)
    wait_until(lambda: committed(handle) > 3 and commits_of(handle)["durable_step"], "commits count", 60)
    [folder] = [one / "actor-1" for one in run_folders(handle.status().view["run_id"]) if one.exists()]
    pid = pid_of(handle, "actor-1")
    os.kill(pid, signal.SIGSTOP)  # it writes no more
    shutil.rmtree(folder)
    shutil.rmtree(next((tmp_path / "durable").rglob("actor-1")))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(JobFailedError) as caught:
        handle.wait(timeout=120)
    assert f"missing at 'actor-1' in '{folder}'" in str(caught.value)
    incidents = record_of("lost").record.incidents
    assert [one.kind for one in incidents] == [FindingKind.PROCESS_DIED, FindingKind.COMMIT_LOST]


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_commit_that_is_only_durable_is_gone_back_to_and_the_loss_is_told(ray_2_nodes_8_gpus, tmp_path, kind):
    durable = tmp_path / "durable"
    place = str(durable) if kind == "folder" else durable.as_uri()
    job = builder(tmp_path).commits(every=1, state_folder=place, durable_every=5).build()
    handle = job.submit(f"older-{kind}", blocking=False)
    wait_until(lambda: committed(handle) > 8 and (commits_of(handle)["durable_step"] or 0) >= 5, "commits count", 60)
    [folder] = [one / "actor-1" for one in run_folders(handle.status().view["run_id"]) if one.exists()]
    pid = pid_of(handle, "actor-1")
    os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(folder)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: handle.status().view["incidents"], "the death is noticed", 60)
    before = committed(handle)
    wait_until(lambda: committed(handle) > before + 3, "training goes on", 60)
    (tmp_path / "enough").touch()
    value = handle.wait(timeout=60).value
    assert value[0] == value[1] == list(range(len(value[0])))
    told = [event.message for event in record_of(f"older-{kind}").journal() if event.kind == "commit_lost"]
    assert any("is lost, training goes on after step" in one and "'actor-1'" in one for one in told)
    wait_until(lambda: not [path for path in durable.rglob("*") if path.is_file()], "it is removed at the end", 30)


def test_durable_storage_of_an_unknown_kind_is_refused_before_anything_starts(ray_2_nodes_8_gpus, tmp_path):
    job = builder(tmp_path).commits(state_folder="s33://bucket/folder").build()
    with pytest.raises(DlrlError, match="fsspec knows no storage of that kind"):
        job.submit("refused", blocking=False)
    assert "refused" not in open_store(default_store_url()).jobs()


def test_durable_storage_that_fails_is_told_and_heals(ray_2_nodes_8_gpus, tmp_path):
    place = tmp_path / "place"
    place.write_text("a file where a folder should be")
    job = builder(tmp_path).commits(every=1, state_folder=str(place), durable_every=2).build()
    handle = job.submit("heals", blocking=False)
    wait_until(lambda: commits_of(handle).get("durable_trouble"), "the trouble is told", 60)
    assert committed(handle) > 0 and commits_of(handle)["durable_step"] is None
    place.unlink()
    wait_until(
        lambda: commits_of(handle)["durable_trouble"] is None and commits_of(handle)["durable_step"], "it heals", 60
    )
    (tmp_path / "enough").touch()
    handle.wait(timeout=60)
    told = [event.message for event in record_of("heals").journal() if event.kind == "commits"]
    assert str(place) in told[0]
    assert told[-1] == "durable copies are made again"


def test_a_damaged_version_is_skipped_for_the_one_before(ray_2_nodes_8_gpus, tmp_path):
    """The newest version of a living rank is changed on its way: all ranks go back to the one before."""
    job = builder(tmp_path).commits(every=1, state_folder=str(tmp_path / "durable")).build()
    handle = job.submit("damaged", blocking=False)
    wait_until(lambda: committed(handle) > 3, "commits count", 60)
    pids = [pid_of(handle, name) for name in ("actor-0", "actor-1")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    [run] = [one for one in run_folders(handle.status().view["run_id"]) if one.exists()]
    held = [{one.parent.name for one in (run / name).glob("*/dlrl_commit.json")} for name in ("actor-0", "actor-1")]
    newest = run / "actor-1" / max(held[0] & held[1], key=lambda name: int(name.partition("-")[0]))
    with (newest / "dlrl_state.bytes").open("r+b") as file:
        file.write(b"damage")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: handle.status().view["incidents"], "the death is noticed", 60)
    before = committed(handle)
    wait_until(lambda: committed(handle) > before + 2, "training goes on", 90)
    (tmp_path / "enough").touch()
    value = handle.wait(timeout=60).value
    assert value[0] == value[1] == list(range(len(value[0])))
    told = [event.message for event in record_of("damaged").journal() if event.kind == "commit_lost"]
    assert any(f"'{newest / 'dlrl_state.bytes'}' is damaged" in one for one in told)


def test_within_a_budget_steps_are_left_out_and_the_pace_is_told(ray_2_nodes_8_gpus, tmp_path):
    handle = builder(tmp_path, steps=60).commits(budget=0.0001).build().submit("budget", blocking=False)
    result = handle.wait(timeout=60)
    assert result.value == [list(range(60))] * 2
    report = result.status.view["progress"]["commits"]
    assert result.status.view["progress"]["committed_step"] <= 3, "until the cost of the first one is known"
    assert "the budget is 0.01%" in report["pace"]


def test_a_node_without_room_for_commits_is_named_before_training_starts(ray_2_nodes_8_gpus, tmp_path):
    job = builder(tmp_path).state_size(10**15).commits(every=1).build()
    with pytest.raises(JobFailedError, match="commits have no room: .* two versions of this state need") as caught:
        job.submit("no-room")
    assert "DLRL_MEMORY" in str(caught.value)
    assert record_of("no-room").record.progress.commit_json is None


def test_state_that_no_commit_can_hold_is_refused_before_training_starts(ray_2_nodes_8_gpus, tmp_path):
    made = RLJobBuilder().device_per_node(2).config({"enough": str(tmp_path / "enough")})
    job = made.trainer(HERE, "KeepingTrainer").actor(HERE, "UnknownOptimizer").total(2).commits(every=1).build()
    with pytest.raises(JobFailedError, match="a commit can't hold the state of optimizer 'Mine'"):
        job.submit("refused")
    assert record_of("refused").record.progress.commit_json is None
