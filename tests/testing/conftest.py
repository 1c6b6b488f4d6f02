"""Frameworks for the kit to judge: a good one, installed by pip, and bad ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrl_core.plugin import reset_plugin_host

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def frameworks_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tests/external_plugin in it, and the metadata of bad_frameworks, which is beside this file."""
    site = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *options, "--target", site, HERE.parent / "external_plugin"]
    subprocess.run(install, check=True, timeout=120)
    _describe(
        site, "dlrl-bad", "entry_points.txt", "[dlrl]\nbad = bad_frameworks.plugin\nheavy = bad_frameworks.heavy\n"
    )
    _describe(site, "heavy-engine", "top_level.txt", "heavy_engine\n")
    return site


def _describe(site: Path, distribution: str, file: str, text: str) -> None:
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / file).write_text(text)


@pytest.fixture(autouse=True)
def _installed(frameworks_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The frameworks are on the path of this process, and of the processes that it starts."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.syspath_prepend(frameworks_site)
    reset_plugin_host()
    yield
    reset_plugin_host()
