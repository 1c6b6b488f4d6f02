"""Jobs on a cluster that is named: seen, stopped and followed from other processes."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
import ray
from checks import wait_until
from cli_shell import PACED, ROOT, acme_path

from dlrl_core.roles import MASTER
from dlrl_core.scheduler.cluster_probe import living_actors
from dlrl_core.scheduler.workload_launcher import find_actor, kill

ENDLESS = ("--set", "steps=100000")
AWAY = "redis://127.0.0.1:1/0"


@pytest.fixture
def address(ray_2_nodes_8_gpus):
    """A cluster that this process has joined, and on which these tests leave nothing."""
    return ray_2_nodes_8_gpus


def test_plan_on_a_real_cluster_names_its_nodes(shell, address):
    ran = shell.run("plan", PACED, "--address", address, "--json")

    assert ran.code == 0
    [node] = ran.json["nodes"]
    assert node["address"] == ran.json["workloads"][0]["node"] != ""


def test_a_framework_runs_by_its_own_words(shell, address, tmp_path):
    env = {"PYTHONPATH": acme_path(tmp_path), "RAY_ADDRESS": address}
    ran = shell.run("run", "--framework", "acme", "--json", "--quiet", "--", "steps=3", "roles.rollout=2", env=env)

    assert ran.code == 0
    assert ran.json["name"].startswith("acme-")
    assert len(ran.json["value"]["mean_rewards"]) == 3


def test_a_job_that_fails_shows_its_first_cause_and_the_remote_traceback(shell, address):
    ran = shell.run("run", PACED, "--address", address, "--set", "fail_at=2", "--quiet")

    assert ran.code == 1
    assert "failed" in ran.out and "3/10" in ran.out
    first, _, traceback = ran.err.partition("\n\n")
    assert first.splitlines()[-1].startswith("error: job 'paced' failed: ")
    assert "told to fail at step 2" in first
    assert traceback.startswith("Traceback") and "paced_roles.py" in traceback
    assert "dlrl_core/cli" not in traceback
    assert "is running" not in ran.err


def test_a_job_that_fails_gives_its_cause_as_json(shell, address):
    ran = shell.run("run", PACED, "--address", address, "--set", "fail_at=0", "--json")

    assert ran.code == ran.json["error"]["exit_code"] == 1
    assert ran.json["state"] == "failed"
    assert ran.json["error"]["type"] == "JobFailedError"
    assert ran.json["error"]["cause"]["type"] == "ValueError"
    assert "Traceback" not in ran.json["error"]["message"]


def test_a_running_job_is_seen_kept_unique_and_stopped_from_other_processes(shell, address):
    env = {"RAY_ADDRESS": address}
    process = shell.start("run", PACED, "--name", "busy", "--json", *ENDLESS, env=env)
    for line in process.stderr:
        if "is running (fit)" in line:
            break

    seen = shell.run("status", "busy", "--json", env=env).json
    assert (seen["source"], seen["state"], seen["note"]) == ("master", "running", None)
    assert [(one["name"], one["state"]) for one in seen["workloads"]] == [("actor-0", "ready")]

    again = shell.run("run", PACED, "--name", "busy", "--json", *ENDLESS, env=env)
    assert (again.code, again.json["error"]["type"]) == (2, "JobExistsError")

    unasked = shell.run("status", "busy")
    assert "says 'running', but no cluster is named, so its master was not asked" in unasked.out
    assert shell.run("stop", "busy").code == 3

    stopped = shell.run("stop", "busy", "--json", env=env)
    assert (stopped.code, stopped.json) == (0, {"name": "busy", "state": "stopped"})

    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["state"] == "stopped"
    assert json.loads(out)["error"]["type"] == "JobStoppedError"
    assert "Traceback" not in err


def test_why_tells_of_a_death_while_the_job_lives_and_after_its_end(shell, address):
    env = {"RAY_ADDRESS": address}
    shell.run("run", PACED, "--name", "hurt", "--detach", "--json", *ENDLESS, env=env)
    before = wait_until(lambda: whole(shell, "hurt", env), "it runs", 90)
    os.kill(before["workloads"][0]["pid"], signal.SIGKILL)
    alive = wait_until(lambda: recovered(shell, "hurt", env), "it runs again", 90)
    said = shell.run("why", "hurt", env=env)
    away = shell.run("why", "hurt", env={**env, "DLRL_STORE": AWAY})
    shell.run("stop", "hurt", env=env)
    dead = shell.run("why", "hurt", "--json").json

    assert (alive["source"], alive["state"], alive["note"]) == ("master", "running", None)
    assert "first cause: workload 'actor-0' died" in alive["sentence"]
    [found] = [link["incident"] for link in alive["chain"] if link["kind"] == "incident"]
    assert (found["scope"], found["loss"]) == ("job", "everything")
    assert found["restarts"] == ["actor-0", "trainer"]
    assert 0 < found["seconds"] < 90
    assert (said.code, "the job 2 of 3" in said.out) == (0, True)
    assert "after 2 process restarts" in away.out and "its journal can't be read: " in away.out
    assert (dead["outcome"], dead["source"]) == ("stopped", "store")
    assert dead["first_cause"]["message"] == "stopped by: dlrl stop"
    assert dead["chain"][: len(alive["chain"])] == alive["chain"]


def whole(shell, name, env):
    """Its status, once it has made a step."""
    seen = shell.run("status", name, "--json", env=env)
    return seen.json if seen.code == 0 and (seen.json["progress"]["step"] or 0) > 1 else None


def recovered(shell, name, env):
    """Its account, once the record says that all was ready again."""
    seen = shell.run("why", name, "--json", env=env).json
    is_complete = all(link["incident"]["seconds"] is not None for link in seen["chain"] if link["incident"])
    return seen if seen["outcome"] == "recovered" and is_complete else None


def test_without_its_store_status_still_shows_the_jobs_that_have_a_master(shell, address):
    env = {"RAY_ADDRESS": address}
    shell.run("run", PACED, "--name", "seen", "--detach", "--json", *ENDLESS, env=env)
    away = {**env, "DLRL_STORE": AWAY}
    listed = shell.run("status", "--json", env=away)
    shown, one = shell.run("status", env=away), shell.run("status", "seen", "--json", env=away)
    examined = shell.run("doctor", "--json", env=away)
    blind = shell.run("status", env={"DLRL_STORE": AWAY})
    elsewhere = shell.run("status", "seen", "--json", env={**env, "DLRL_STORE": f"sqlite://{shell.temp}/other.db"})
    shell.run("stop", "seen", env=env)

    assert [(job["name"], job["source"], job["note"]) for job in listed.json["jobs"]] == [("seen", "master", None)]
    assert AWAY in listed.json["store_problem"]
    assert shown.code == 0 and "seen" in shown.out
    assert "the store can't be asked, so only jobs with a master on this cluster are shown: " in shown.out
    assert one.json["store_problem"].startswith("its journal can't be read: ")
    found = {(check["subject"], check["level"]) for check in examined.json["checks"]}
    assert {("records", "problem"), ("orphans", "ok")} <= found
    assert (blind.code, blind.out) == (3, "")
    assert "its journal is in another store, sqlite://" in elsewhere.json["store_problem"]


def test_doctor_finds_what_a_lost_master_left_behind_and_how_to_remove_it(shell, address):
    submitted = shell.run("run", PACED, "--name", "orphan", "--address", address, "--detach", "--json", *ENDLESS)
    assert (submitted.code, submitted.json["name"]) == (0, "orphan")
    wait_until(lambda: len(living_actors().get("orphan", [])) == 3, "all its processes have started")
    kill(find_actor("orphan", MASTER))
    wait_until(lambda: find_actor("orphan", MASTER) is None, "the Master is gone")

    examined = shell.run("doctor", "--address", address, "--json")
    listed = shell.run("status", "orphan", "--address", address)

    orphans = [check for check in examined.json["checks"] if check["subject"] == "orphans"]
    for check in orphans:
        follow(check, address)
    assert examined.code == 1
    assert "actor-0, trainer" in orphans[0]["seen"]
    assert "holds the placement group" in orphans[1]["seen"]
    assert "but this cluster has no master of it" in listed.out
    after = shell.run("doctor", "--address", address, "--json")
    found = {(check["subject"], check["level"]): check["seen"] for check in after.json["checks"]}
    assert (after.code, ("orphans", "ok") in found) == (0, True)
    assert "the record of job 'orphan' says" in found["records", "warning"]


def follow(check, address):
    """Do what the doctor says, with the snippet of the reference page for placement groups."""
    names = {"ray": ray, "address": address}
    if group := re.search(r"placement group ([0-9a-f]+)", check["seen"]):
        page = (ROOT / "docs" / "reference" / "cli.md").read_text()
        snippet = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
        code = snippet.replace("HOST:PORT", address).replace("THE_ID", group[1])
        ray.shutdown()  # the snippet joins the cluster by itself
        exec(code, names)
        return
    for name in ("trainer", "actor-0"):
        exec(check["todo"].partition(": ")[2].replace("actor-0", name), names)
