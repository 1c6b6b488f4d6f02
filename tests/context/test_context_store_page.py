"""The page about choosing a store: its settings, its rights and its code are tried on a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checks import short_temp_folder
from context_samples import REPOSITORY, job_record
from redis_server import RedisServer

from dlrl_core.context import JobContext, OutageLimits, open_store

PAGE = (REPOSITORY / "docs" / "how-to" / "choose-a-store.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_settings_and_rights_of_the_page_are_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, user = blocks("text")
    words = [word for line in settings.splitlines() for word in (f"--{line.split()[0]}", line.split()[1])]
    (code,) = blocks("python")
    with RedisServer(short_temp_folder(), *words) as server:
        server.client().execute_command("ACL", "SETUSER", *user.split()[1:])
        monkeypatch.setenv("DLRL_STORE", f"redis://dlrl:password@127.0.0.1:{server.port}/0")
        with open_store(f"redis://dlrl:password@127.0.0.1:{server.port}") as store:
            context = JobContext.create(store, job_record())
            with context.change() as change:
                change.event("note", "one")
            assert len(context.journal()) == 2
        exec(compile(code, "choose-a-store.md", "exec"), {})

        assert capsys.readouterr().out == f"redis://127.0.0.1:{server.port}/0\n['my-ppo']\n"


def test_limits_of_the_page_are_those_of_the_code() -> None:
    limits = OutageLimits()

    assert f"{limits.most_changes:_}".replace("_", " ") + " changes" in PAGE
    assert f"{limits.most_characters // 1_000_000} million characters" in PAGE
    assert (
        f"after {limits.first_pause_s:g} s, then after twice as long each time, up to {limits.longest_pause_s:g} s"
        in PAGE
    )
    assert limits.patience_s == 1
    assert "goes on after a second at most" in PAGE


def test_links_of_the_page_lead_somewhere() -> None:
    folder = Path(REPOSITORY / "docs" / "how-to")

    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (folder / target).exists(), target
