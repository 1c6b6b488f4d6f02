"""`dlrl plan` shows who sits where, for job files and for a framework's own words."""

from __future__ import annotations

import pytest
from cli_shell import PACED, ROOT, acme_path

QUICKSTART = ROOT / "examples" / "quickstart" / "quickstart.yaml"


def test_the_table_has_a_row_for_each_workload(shell, tmp_path):
    """Classes are found beside the job file, whatever the current folder is."""
    ran = shell.run("plan", QUICKSTART, cwd=tmp_path)
    rows = [line.split() for line in ran.out.splitlines()]

    assert ran.code == 0
    assert ["workload", "node", "device", "share", "collocated", "with"] in rows
    assert ["actor-1", "node-0", "GPU", "1", "50%", "rollout"] in rows
    assert ["reward-0", "node-0", "none"] in rows
    assert "7 workloads on 1 node, 3 GPU devices" in ran.out


def test_a_described_cluster_limits_only_what_was_said(shell):
    ran = shell.run("plan", QUICKSTART, "--nodes", "2", "--devices", "8", "--json")
    short = shell.run("plan", QUICKSTART, "--nodes", "2", "--devices", "8", "--cpus", "6", "--json")

    assert ran.code == 0
    assert (ran.json["device_type"], ran.json["device_count"], len(ran.json["workloads"])) == ("GPU", 3, 7)
    assert short.code == 3
    assert "7 CPU" in short.json["error"]["message"]


@pytest.mark.parametrize("words", [["steps=3", "roles.rollout=2"], ["acme.yaml"]], ids=["words", "yaml"])
def test_a_framework_gets_its_own_words_or_its_yaml_file(shell, tmp_path, words):
    (tmp_path / "acme.yaml").write_text("steps: 3\nroles: {rollout: 2}\n")
    env = {"PYTHONPATH": acme_path(tmp_path)}
    ran = shell.run("plan", "--framework", "acme", "--json", "--", *words, env=env, cwd=tmp_path)

    assert ran.code == 0
    assert [row["workload"] for row in ran.json["workloads"]] == ["actor-0", "rollout-0", "rollout-1"]


def test_what_a_framework_refuses_is_said_in_its_words(shell, tmp_path):
    env = {"PYTHONPATH": acme_path(tmp_path)}
    ran = shell.run("plan", "--framework", "acme", "--json", "--", "steps=0", "batch=0", env=env)

    assert ran.code == 2
    assert ran.json["error"]["problems"] == [
        "acme has steps=0; it must be a number from 1 on",
        "acme has batch=0; it must be a number from 1 on",
    ]


def test_an_override_of_a_key_that_is_not_there_is_told(shell):
    ran = shell.run("plan", PACED, "--set", "stepz=3")

    assert ran.code == 0
    assert "override adds 'stepz', which the config did not have" in ran.err
