"""`dlrl run` without a cluster: an embedded local Ray is there for the job, and gone with it."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from checks import wait_until
from cli_shell import PACED
from job_story import JobStory

from dlrl_core.api import JobResult, JobStatus, RLJob


@pytest.fixture(scope="module")
def shared_run(module_shell):
    """One finished job, looked at by several tests."""
    return module_shell.run_process(
        "run", PACED, "--name", "shared", "--set", "steps=30", "--set", "pause_s=0.05", "--json"
    )


def test_a_finished_job_gives_one_json_object_and_exit_code_0(shared_run):
    result = shared_run.json

    assert shared_run.code == 0
    assert (result["name"], result["state"]) == ("shared", "finished")
    assert (result["steps"], result["total_steps"]) == (30, 30)
    assert result["metrics"] == {"done": 30.0}
    assert result["phase_seconds"]["actor.work"] >= 0.05
    assert result["seconds"] > 30 * 0.05


def test_the_result_of_the_trainer_is_valid_json_whatever_it_holds(shared_run):
    assert shared_run.json["value"] == {"done": 30, "loss": "nan"}


def test_progress_and_what_the_job_prints_go_to_stderr(shared_run):
    lines = shared_run.err.splitlines()

    assert any("the trainer talks on its stdout" in line for line in lines)
    assert any(line.startswith("dlrl: job 'shared' is running (fit)") for line in lines)
    assert len([line for line in lines if line.startswith("dlrl: job 'shared'")]) < 12


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_job_whose_end_the_store_did_not_take_ends_with_exit_code_3(shell, tmp_path, monkeypatch, options):
    view = {**JobStory(tmp_path).context.snapshot(), "state": "finished", "degraded": "the store is full"}
    result = JobResult(name="my-ppo", value=[5], seconds=1.0, status=JobStatus(view=view))
    monkeypatch.setattr(RLJob, "submit", lambda *_, **__: result)

    ran = shell.run("run", PACED, *options)

    assert ran.code == 3
    assert "5" in ran.out
    assert not options or ran.json["degraded"] == "the store is full"


def test_nothing_is_left_after_the_job(module_shell, shared_run):
    wait_until(lambda: not module_shell.processes(), "no process is left")

    assert module_shell.temp_files() == []


def test_status_lists_the_job_from_its_record(module_shell, shared_run):
    [job] = module_shell.run("status", "--json").json["jobs"]
    listed = module_shell.run("status")

    assert (job["name"], job["state"], job["step"], job["source"]) == ("shared", "finished", 30, "store")
    assert job["note"] is None
    assert "shared" in listed.out and "finished" in listed.out and "30/30" in listed.out


def test_status_of_one_job_shows_workloads_and_journal(module_shell, shared_run):
    ran = module_shell.run("status", "shared")

    assert ran.code == 0
    assert "actor-0" in ran.out and "ended" in ran.out
    assert "job 'shared' was submitted" in ran.out
    assert "the trainer returned" in ran.out


def test_status_shows_no_secret(module_shell, shared_run):
    ran = module_shell.run("status", "shared", "--json")

    assert ran.json["spec"]["config"]["api_token"] == "***"
    assert [workload["name"] for workload in ran.json["workloads"]] == ["actor-0"]
    assert "not-for-your-eyes" not in ran.out


def test_stopping_an_ended_job_changes_nothing_and_is_no_error(module_shell, shared_run):
    ran = module_shell.run("stop", "shared")

    assert (ran.code, ran.out) == (0, "job 'shared' has ended: finished\n")


def test_ctrl_c_stops_the_job_and_leaves_nothing(shell):
    process = shell.start("run", PACED, "--set", "steps=100000")
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
    reader.start()
    wait_until(lambda: any("is running (fit)" in line for line in said), "it runs", 90)
    assert shell.processes()

    os.killpg(process.pid, signal.SIGINT)
    code = process.wait(timeout=60)
    reader.join(10)

    assert code == 130
    assert "stopped" in process.stdout.read()
    text = "".join(said)
    assert "stopping job 'paced'; Ctrl-C again leaves it as it is" in text
    assert text.endswith("error: interrupted\n")
    assert "Traceback" not in text
    wait_until(lambda: not shell.processes(), "no process is left")
    assert shell.temp_files() == []
    assert shell.run("status", "--json").json["jobs"][0]["state"] == "stopped"
