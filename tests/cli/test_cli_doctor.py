"""`dlrl doctor` and `dlrl frameworks` say what is wrong with this machine, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import pytest
from redis_server import RedisServer

from dlrl_core.context.store import open_store, sqlite_url
from dlrl_doctor.leftovers import temp_folders
from dlrl_local_ray.local_cluster import _short_temp_dir


def checks(ran):
    """What was seen, and what to do, by subject and level."""
    return {(check["subject"], check["level"]): f"{check['seen']} -> {check['todo']}" for check in ran.json["checks"]}


def token_file(shell, mode):
    path = shell.folder / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("t" * 32)
    path.chmod(mode)
    return path


def dead_cluster(shell, name="dlrl-dead"):
    """A folder as `dlrl_local_ray.local_cluster` makes it, of an hour ago."""
    folder = shell.temp / name
    (folder / "ray").mkdir(parents=True)
    (folder / "keeper.log").touch()
    hour_ago = time.time() - 3600
    os.utime(folder, (hour_ago, hour_ago))
    return folder


def test_a_healthy_machine_has_no_problem(shell):
    ran = shell.run("doctor")

    assert ran.code == 0
    assert "0 problems" in ran.out
    assert "ok       python: " in ran.out
    assert "ok       ray: " in ran.out


def test_versions_are_held_against_our_own_metadata(shell):
    found = checks(shell.run("doctor", "--json"))

    for name in ("python", "ray", "pluggy", "pydantic", "omegaconf", "typer", "rich", "psutil"):
        assert "supported: " in found[name, "ok"]
    assert ("pytest", "ok") not in found


def test_an_unsupported_version_is_a_problem_with_the_command_that_helps(shell, tmp_path):
    info = tmp_path / "rich-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rich\nVersion: 1.0\n")
    ran = shell.run("doctor", "--json", env={"PYTHONPATH": str(tmp_path)})

    assert ran.code == 1
    assert "1.0 is not supported (<16,>=13.9) -> run: pip install 'rich" in checks(ran)["rich", "problem"]


def test_a_token_that_others_can_read_is_a_problem(shell):
    path = token_file(shell, 0o644)
    ran = shell.run("doctor", "--json", env={"RAY_AUTH_MODE": "token"})

    assert ran.code == 1
    assert f"'{path}' has mode 0644" in checks(ran)["ray token", "problem"]
    assert f"chmod 600 '{path}'" in checks(ran)["ray token", "problem"]


def test_a_private_token_is_fine(shell):
    token_file(shell, 0o600)
    found = checks(shell.run("doctor", "--json", env={"RAY_AUTH_MODE": "token"}))

    assert ("ray token", "ok") in found
    assert "on (RAY_AUTH_MODE=token)" in found["ray auth", "ok"]


def test_a_token_that_turns_authentication_on_silently_is_a_warning(shell):
    token_file(shell, 0o600)
    ran = shell.run("doctor", "--json", env={"RAY_AUTH_MODE": None})

    assert ran.code == 0
    assert "Ray turns authentication on by itself because of the token" in checks(ran)["ray auth", "warning"]


@pytest.mark.parametrize(
    ("mode", "message"), [("token", "there is no token in RAY_AUTH_TOKEN or"), ("on", "RAY_AUTH_MODE is 'on'")]
)
def test_an_authentication_that_can_not_work_is_a_problem(shell, mode, message):
    ran = shell.run("doctor", "--json", env={"RAY_AUTH_MODE": mode})

    assert ran.code == 1
    assert message in checks(ran)["ray auth", "problem"]


def test_a_store_that_others_can_read_is_a_problem(shell):
    database = shell.home / "context.db"
    with open_store(sqlite_url(database)) as store:
        store.commit("one", expected_version=0, puts={"k": "{}"})
    database.chmod(0o644)
    shell.home.chmod(0o755)
    found = checks(shell.run("doctor", "--json"))

    assert "has mode 0644 and may hold secrets" in found["store", "problem"]
    assert "has mode 0755" in found["home", "warning"]


def test_a_store_that_may_lose_records_is_a_warning_with_the_setting_that_helps(shell):
    with RedisServer(shell.folder / "redis", "--appendonly", "no") as server:
        ran = shell.run("doctor", "--json", env={"DLRL_STORE": server.url})
        shown = shell.run("doctor", env={"DLRL_STORE": server.url}).out

    assert ran.code == 0
    assert checks(ran)["store", "warning"] == (
        f"the store {server.url} has no append-only file: a restart of the server loses records"
        " -> set 'appendonly yes' in its configuration"
    )
    assert "\n         → set 'appendonly yes' in its configuration\n" in shown


def test_a_store_that_is_away_is_a_problem_and_no_end_of_the_examination(shell):
    ran = shell.run("doctor", "--json", env={"DLRL_STORE": "redis://127.0.0.1:1/0"})

    assert ran.code == 1
    assert "this could not be checked: " in checks(ran)["store", "problem"]
    assert ("leftovers", "ok") in checks(ran)


def test_a_folder_of_a_dead_local_ray_is_reported_and_removed_only_when_asked(shell):
    folder = dead_cluster(shell)
    (shell.temp / "dlrl-somebody-elses").mkdir()

    seen = checks(shell.run("doctor", "--json"))
    assert f"'{folder}' is of a local Ray that was killed -> run: dlrl doctor --clean" in seen["leftovers", "warning"]
    assert folder.exists()

    cleaned = shell.run("doctor", "--clean")
    assert cleaned.code == 0
    assert f"'{folder}' was removed" in cleaned.out
    assert [path.name for path in shell.temp_files()] == ["dlrl-somebody-elses"]


def test_a_folder_of_a_local_ray_that_did_not_start_is_reported_and_removed_too(shell):
    """All that is left there is the keeper's log."""
    folder = dead_cluster(shell)
    (folder / "ray").rmdir()
    os.utime(folder, (time.time() - 3600,) * 2)

    seen = checks(shell.run("doctor", "--json"))["leftovers", "warning"]
    assert f"'{folder}' is of a local Ray that did not start -> run: dlrl doctor --clean" in seen
    assert shell.run("doctor", "--clean").code == 0
    assert shell.temp_files() == []


@pytest.mark.parametrize(
    ("usual", "places"),
    [
        ("/tmp", ["/tmp"]),
        ("/scratch", ["/scratch"]),
        ("/scratch/of/somebody/else", ["/scratch/of/somebody/else", "/tmp"]),
    ],
)
def test_where_the_temp_folder_is_too_long_for_ray_the_short_one_is_searched_too(monkeypatch, usual, places):
    monkeypatch.setattr(tempfile, "tempdir", usual)
    assert temp_folders() == places
    assert _short_temp_dir() == places[-1]


def test_a_folder_that_a_process_still_uses_is_never_removed(shell):
    """Neither one with a living keeper, nor one whose keeper is gone and whose Ray runs on."""
    kept, used = dead_cluster(shell, "dlrl-kept"), dead_cluster(shell, "dlrl-used")
    sleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    keeper = subprocess.Popen([*sleep, "dlrl_local_ray.keeper", kept], stdin=subprocess.PIPE)
    raylet = subprocess.Popen([*sleep, f"--temp-dir={used}/ray"], stdin=subprocess.PIPE)
    try:
        ran = shell.run("doctor", "--clean", "--json")
    finally:
        for process in (keeper, raylet):
            process.stdin.close()
            process.wait()

    assert ran.code == 1
    assert f"the keeper of '{used}' is gone" in checks(ran)["leftovers", "problem"]
    assert f"kill {raylet.pid}" in checks(ran)["leftovers", "problem"]
    assert kept.exists() and used.exists()
    assert str(kept) not in ran.out


def test_frameworks_lists_every_plugin_with_what_it_supports(shell):
    ran = shell.run("frameworks", "--json")
    plugins = {plugin["name"]: plugin for plugin in ran.json["plugins"]}

    assert ran.code == 0
    assert plugins["builtin"]["status"] == "loaded"
    [verl] = plugins["verl"]["frameworks"]
    assert (verl["name"], verl["distribution"], verl["supported"]) == ("verl", "verl", ">=0.9.1,<0.10")
    assert ran.json["problems"] == []


def test_a_broken_plugin_is_said_loudly_and_once(shell, tmp_path):
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\nacme = no_such_module\n")
    env = {"PYTHONPATH": str(tmp_path)}
    listed, examined = shell.run("frameworks", env=env), shell.run("doctor", "--json", env=env)

    assert listed.code == 0
    assert listed.err.count("plugin 'acme' (acme 1.0) is broken") == 1
    assert "broken" in listed.out
    assert examined.code == 1
    assert "plugin 'acme' (acme 1.0) is broken" in checks(examined)["plugins", "problem"]
