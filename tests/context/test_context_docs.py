"""The page about the job context shows code that runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from context_samples import REPOSITORY

PAGE = REPOSITORY / "docs" / "explanation" / "job-context.md"


def test_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DLRL_STORE", raising=False)
    monkeypatch.setenv("DLRL_HOME", str(tmp_path / "home"))
    code = [line for line in PAGE.read_text().splitlines() if line.startswith("    ") or not line]

    exec(compile(textwrap.dedent("\n".join(code)), str(PAGE), "exec"), {})

    assert capsys.readouterr().out == "reserving\n"
    assert (tmp_path / "home" / "context.db").exists()
