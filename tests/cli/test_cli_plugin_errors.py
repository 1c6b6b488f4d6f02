"""A plugin that raises ends a command with one sentence, the plugin's name, the place and exit code 2."""

from __future__ import annotations

import os

import pytest

from dlrl_core.cli.app import main
from dlrl_core.cli.error_report import exit_code_of
from dlrl_core.errors import JobFailedError, PluginError, RemoteCause, TrainerError

CODE = """
import typer
from dlrl_core.cli.app import AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_core.errors import ClusterError
from dlrl_core.plugin import FrameworkAdapter, hookimpl
DLRL_API_VERSION = 2

class Acme(FrameworkAdapter):
    name = "acme"
    def read_config(self, source): return {}
    def fill(self, config): return config["model"]

def shout(as_json: AsJson = False) -> None:
    with errors_shown(as_json):
        raise ValueError("hf_token=hush-hush")
def leave(as_json: AsJson = False) -> None: raise typer.Exit(7)
def lose(as_json: AsJson = False) -> None: raise ClusterError("no cluster")

@hookimpl
def dlrl_frameworks(): return [Acme]
@hookimpl
def dlrl_commands(): return {"shout": shout, "leave": leave, "lose": lose}
@hookimpl
def dlrl_stores(): return {"acme": lambda url: {}[url]}
"""
CASES = {
    "adapter": (["plan", "--framework", "acme", "--", "x=1"], "'fill' of framework 'acme'", "KeyError: 'model'"),
    "run": (["run", "--framework", "acme", "--", "x=1"], "'fill' of framework 'acme'", "KeyError: 'model'"),
    "command": (["shout"], "command 'shout'", "ValueError: hf_token=***"),
    "store": (["status"], "store scheme 'acme'", "KeyError: 'acme://host'"),
}


@pytest.fixture
def env(tmp_path) -> dict[str, str]:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\nacme = acme_that_raises\n")
    (tmp_path / "acme_that_raises.py").write_text(CODE)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    return {"PYTHONPATH": path, "DLRL_STORE": "acme://host"}


@pytest.mark.parametrize(("words", "what", "raised"), CASES.values(), ids=CASES)
def test_an_error_of_a_plugin_is_one_sentence_and_exit_code_2(shell, env, tmp_path, words, what, raised):
    ran = shell.run(*words, env=env)

    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    place = f"{tmp_path}/acme_that_raises.py:"
    assert ran.err.startswith(f"error: plugin 'acme' (acme 1.0) failed in {what} at {place}")
    assert ran.err.endswith(f": {raised}\n")


@pytest.mark.parametrize(("words", "what", "raised"), CASES.values(), ids=CASES)
def test_an_error_of_a_plugin_is_json_where_asked(shell, env, words, what, raised):
    ran = shell.run(words[0], "--json", *words[1:], env=env)

    error = ran.json["error"]
    assert (ran.code, error["type"], error["exit_code"], ran.err) == (2, "PluginError", 2, "")
    assert f"failed in {what} at " in error["message"]
    assert error["cause"]["type"] == raised.partition(":")[0]
    assert error["cause"]["traceback"].startswith("Traceback (most recent call last)")


@pytest.mark.parametrize("words", [["run", "no_such.yaml"], ["stop", "nobody"]])
def test_a_broken_plugin_is_named_before_a_job_is_touched(shell, tmp_path, words):
    info = tmp_path / "torn-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torn\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\ntorn = no_such_module\n")
    ran = shell.run(*words, env={"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})

    problem, error = ran.err.splitlines()
    assert problem.startswith("problem: plugin 'torn' (torn 1.0) is broken; update or uninstall torn: ModuleNotFound")
    assert error.startswith("error: ")


@pytest.mark.parametrize(("command", "raised"), [("run", ZeroDivisionError), ("why", SystemExit)])
def test_a_bug_behind_run_is_a_traceback_and_no_error_of_its_plugin(shell, monkeypatch, command, raised):
    """Most of what `run` calls is the core; the other commands name the plugin that they are from."""

    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dlrl_jobs.job_input.JobInput.build", fail)
    monkeypatch.setattr("dlrl_why.show.show_why", fail)
    monkeypatch.setattr("sys.argv", ["dlrl", command, "job.yaml"])
    monkeypatch.setattr("dlrl_core.cli.app.app.registered_commands", [])

    with pytest.raises(raised):
        main()


@pytest.mark.parametrize(("word", "code"), [("leave", 7), ("lose", 3)])
def test_a_plugins_command_ends_on_purpose_as_it_says(shell, env, word, code):
    assert shell.run(word, env=env).code == code


def test_a_job_that_fails_by_an_error_of_a_plugin_ends_with_exit_code_2():
    """As when `prepare_process` raises: in a process of the job, from which the error comes pickled."""
    error = PluginError("plugin 'acme' (acme 1.0) failed in 'prepare_process' of framework 'acme'")
    error.cause = RemoteCause.of(KeyError("model"))
    cause = RemoteCause.of(TrainerError("the trainer could not be imported", RemoteCause.of(error)))
    failed = JobFailedError("ppo", "job 'ppo' failed", cause)
    failed.__cause__ = cause.load()

    assert cause.type_name == "PluginError"
    assert exit_code_of(failed) == 2
