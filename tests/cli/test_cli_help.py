"""The command answers at once, and its help says what a user must know."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli_shell import PACED, ROOT, Shell

from dlrl_core import __version__
from dlrl_core.cli.error_report import MEANINGS, ExitCode
from dlrl_core.plugin.hookspecs import KINDS

COMMANDS = ("run", "plan", "status", "why", "stop", "chaos", "frameworks", "doctor")

IMPORTED = """
import json, sys
from dlrl_core.cli.app import main
sys.argv = ["dlrl", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported_by(shell: Shell, *words: str, **env: str) -> tuple[int, set[str]]:
    """The exit code of a command, and the top packages it imported."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words],
        cwd=ROOT,
        env=shell.environment(**env),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, set(modules)


def test_help_imports_nothing_heavy(shell):
    code, modules = imported_by(shell, "--help")

    assert code == 0
    assert not modules & {"ray", "torch", "omegaconf", "pydantic", "numpy", "yaml", "psutil"}


def test_no_plugin_can_take_the_name_of_a_command():
    assert set(COMMANDS) == set(KINDS["dlrl_commands"].of_dlrls_plugins)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run", "belongs to dlrl itself"),
        ("why", "belongs to dlrl itself"),
        ("torn", "No module named 'no_such'"),
        ("odd", "is no command: AssertionError: Typer currently doesn't support Union types"),
    ],
)
def test_a_plugins_command_that_can_not_be_used_is_named(shell, tmp_path, name, words):
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\nacme = acme_commands\n")
    given = "odd" if name == "odd" else "'no_such:module'"
    hook = f"def dlrl_commands(): return {{'{name}': {given}}}"
    (tmp_path / "acme_commands.py").write_text(
        f"from dlrl_core import hookimpl\nDLRL_API_VERSION = 2\ndef odd(words: int | str): ...\n@hookimpl\n{hook}\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "100"}
    helped, listed = shell.run("--help", env=env), shell.run("frameworks", env=env)

    for ran in (helped, listed):
        assert ran.code == 0
        [problem] = ran.err.splitlines()
        assert f"command '{name}'" in problem and "plugin 'acme' (acme 1.0)" in problem and words in problem
    assert "│ run   " in helped.out and "│ torn " not in helped.out


def test_help_costs_less_than_a_second_of_cpu(shell):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = shell.run_process("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert ran.code == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_plan_imports_neither_ray_nor_torch_nor_the_jobs_classes(shell):
    """Not even where RAY_ADDRESS names a cluster: nobody listens there, and plan does not mind."""
    code, modules = imported_by(shell, "plan", str(PACED), RAY_ADDRESS="127.0.0.1:1")

    assert code == 0
    assert not modules & {"ray", "torch", "numpy", "paced_roles"}


def test_the_help_lists_all_commands_and_exit_codes(shell):
    ran = shell.run("--help", env={"COLUMNS": "100"})

    listed = re.findall(r"^│ ([a-z]+) ", ran.out, re.MULTILINE)
    assert listed[:2] == ["run", "stop"] and listed[2:] == sorted(set(COMMANDS) - {"run", "stop"})
    for code in ExitCode:
        assert f"{code.value:>3}  {MEANINGS[code]}" in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example_in_its_help(shell, command):
    ran = shell.run(command, "--help", env={"COLUMNS": "100"})

    assert ran.code == 0
    assert re.search(rf"Examples?: *\n +dlrl {command}\b", ran.out)
    assert "--json" in ran.out


def test_the_reference_page_names_every_command_option_and_exit_code(shell):
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()

    for command in COMMANDS:
        help_text = shell.run(command, "--help", env={"COLUMNS": "200"}).out
        assert f"## dlrl {command}" in page
        for option in re.findall(r"^│ (--[a-z]+)", help_text, re.MULTILINE):
            assert option == "--help" or f"`{option}" in page, (command, option)
    for code in ExitCode:
        assert f"| {code.value} | {MEANINGS[code]} |" in page


def test_the_version_is_that_of_the_package(shell):
    assert shell.run_process("--version").out == f"dlrl {__version__}\n"


def test_nothing_is_written_by_commands_that_only_look(shell):
    for words in (["status"], ["why", "nobody"], ["frameworks"], ["plan", PACED], ["doctor"]):
        shell.run(*words)

    assert not Path(shell.home).exists()
    assert shell.temp_files() == []
