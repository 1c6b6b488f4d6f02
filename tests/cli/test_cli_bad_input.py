"""Whatever a user gets wrong ends with a sentence and an exit code, never with a traceback of ours."""

from __future__ import annotations

import pytest
from cli_shell import PACED, ROOT

QUICKSTART = ROOT / "examples" / "quickstart" / "quickstart.yaml"

CASES = {
    "no job": (["run"], 2, "say one job file (JOB.yaml), or --framework NAME followed by --"),
    "two jobs": (["run", "a.yaml", "b.yaml"], 2, "got 2 words"),
    "no such file": (["run", "missing.yaml"], 2, "can't read 'missing.yaml': No such file or directory"),
    "not yaml": (["plan", "torn.yaml"], 2, "'torn.yaml' is not valid YAML"),
    "unknown key": (["plan", "typo.yaml"], 2, "'typo.yaml' has the unknown key 'node_nums'; did you mean 'node_num'?"),
    "unknown class": (["plan", "typo.yaml"], 2, "has no class 'PacedAktor'; did you mean 'PacedActor'?"),
    "unknown module": (["run", "typo.yaml"], 2, "the trainer is 'nowhere.PacedTrainer': there is no module 'nowhere'"),
    "bad name": (["run", PACED, "--name", "no spaces"], 2, "job name 'no spaces' is not allowed"),
    "an empty name": (["run", PACED, "--name", ""], 2, "job name '' is not allowed; use 1 to 63 letters"),
    "half an override": (["run", PACED, "--set", "steps"], 2, "override 'steps' is not written as key=value"),
    "override of words": (
        ["plan", "--framework", "verl", "--set", "a=1", "--", "b=2"],
        2,
        "override of 'a' can't be laid over a framework's own words",
    ),
    "unknown framework": (["run", "--framework", "verll"], 2, "unknown framework 'verll'; did you mean 'verl'?"),
    "missing framework": (["run", "--framework", "verl", "--", "x=1"], 2, "run: pip install 'dlrl[verl]'"),
    "detached from nothing": (["run", PACED, "--detach"], 2, "--detach needs a cluster that outlives this command"),
    "half a cluster": (["plan", PACED, "--nodes", "2"], 2, "a described cluster needs both --nodes and --devices"),
    "two clusters": (["plan", PACED, "--address", "x:1", "--nodes", "2"], 2, "either --address or --nodes"),
    "no nodes": (["plan", PACED, "--nodes", "0", "--devices", "1"], 2, "--nodes"),
    "unknown option": (["run", PACED, "--nmae", "x"], 2, "--nmae"),
    "unknown command": (["rum"], 2, "rum"),
    "too small": (
        ["plan", QUICKSTART, "--nodes", "1", "--devices", "2"],
        3,
        "the roles need 3 GPU in all",
    ),
    "nobody listens": (["status", "--address", "127.0.0.1:1"], 3, "nobody listens there"),
    "no such address": (["run", PACED, "--address", "nowhere"], 3, "can't join the Ray cluster at 'nowhere'"),
    "status of nobody": (["status", "nobody"], 4, "no job is named 'nobody'; known jobs: none"),
    "why of nobody": (["why", "nobody"], 4, "no job is named 'nobody'; known jobs: none"),
    "chaos for nobody in particular": (["chaos", "job"], 2, "name one process to hit, or say --seed"),
    "chaos of an unknown kind": (
        ["chaos", "job", "actor-0", "--kind", "kil"],
        2,
        "unknown kind 'kil'; did you mean 'kill'? known: kill, freeze, hang, slow, node, store",
    ),
    "chaos at two moments": (
        ["chaos", "job", "actor-0", "--step", "1", "--call", "x"],
        2,
        "say either --step or --call, not both",
    ),
    "empty name": (["run", PACED, "--name", ""], 2, "job name '' is not allowed; use 1 to 63 letters"),
    "stop of nobody": (["stop", "nobody"], 4, "no job is named 'nobody'"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "torn.yaml").write_text("config: {a: [1, 2\n")
    (tmp_path / "typo.yaml").write_text(
        PACED.read_text().replace("node_num:", "node_nums:").replace("PacedActor", "PacedAktor")
        .replace("{module: paced_roles, class: PacedTrainer}", "{module: nowhere, class: PacedTrainer}")
    )  # fmt: skip
    (tmp_path / "paced_roles.py").write_text((PACED.parent / "paced_roles.py").read_text())
    return tmp_path


@pytest.mark.parametrize(("words", "code", "message"), CASES.values(), ids=CASES.keys())
def test_bad_input_ends_with_a_message(shell, folder, words, code, message):
    ran = shell.run(*words, cwd=folder)

    assert ran.code == code
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_all_problems_of_a_job_are_said_at_once_as_json(shell, folder):
    ran = shell.run("run", "typo.yaml", "--json", cwd=folder)

    error = ran.json["error"]
    assert ran.code == error["exit_code"] == 2
    assert error["type"] == "SpecError"
    assert len(error["problems"]) == 3


def test_a_secret_of_the_command_line_is_not_repeated(shell, folder):
    ran = shell.run("run", "--framework", "verl", "--set", "hf_token=hush-hush", "--", "x=1", cwd=folder)

    assert ran.code == 2
    assert "hush" not in ran.out + ran.err
