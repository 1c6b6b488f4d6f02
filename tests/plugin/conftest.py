"""Real distributions for the plugin tests: metadata folders and modules on a path of their own."""

from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlrl_core.plugin import API_VERSION, reset_plugin_host

ROOT = Path(__file__).parents[2]
_serial = itertools.count()


class Site:
    """A folder on `sys.path` in which distributions are installed as pip would leave them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    def install(
        self,
        distribution: str,
        code: str = "",
        *,
        entry: str = "acme",
        version: str = "1.0",
        target: str | None = None,
        entry_points: str | None = None,
    ) -> str:
        """Write a distribution whose one module has this code; its entry point names the module.

        A module that does not say for which API version it was written says today's.
        """
        said = "" if "DLRL_API_VERSION" in code else f"DLRL_API_VERSION = {API_VERSION}\n"
        module = f"plugin_of_{re.sub('[^a-z]', '_', distribution.lower())}_{next(_serial)}"
        (self.path / f"{module}.py").write_text(said + textwrap.dedent(code))
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        text = entry_points if entry_points is not None else f"[dlrl]\n{entry} = {target or module}\n"
        (info / "entry_points.txt").write_text(text)
        importlib.invalidate_caches()
        return module

    def install_framework(self, distribution: str, framework: str, **options: str) -> str:
        """A plugin that registers one framework."""
        return self.install(distribution, _hook("dlrl_frameworks", "return [Whole]", framework), **options)

    def install_hook(self, distribution: str, hook: str, body: str, **options: str) -> str:
        """A plugin with one hook that runs this line."""
        return self.install(distribution, _hook(hook, body, "whole"), **options)


def _hook(name: str, body: str, framework: str) -> str:
    return f"""
from dlrl_core.plugin import FrameworkAdapter, hookimpl

class Whole(FrameworkAdapter):
    name = "{framework}"
    def read_config(self, source): return {{}}
    def fill(self, config): raise NotImplementedError

class Nameless(Whole):
    name = ""

class Half(FrameworkAdapter):
    name = "half"
    def read_config(self, source): return {{}}

class Newer(Whole):
    api_version = {API_VERSION + 1}

class Unborn(Whole):
    def __init__(self): raise RuntimeError("no instance today")

@hookimpl
def {name}():
    {body}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty site folder, first on this process's path."""
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(made.path)
    return made


@pytest.fixture(autouse=True)
def _fresh_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DLRL_PLUGINS", raising=False)
    reset_plugin_host()
    yield
    reset_plugin_host()


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Run code in a new process that sees dlrl and the given folders; return what it prints."""

    def run(code: str, *folders: Path, **env: str) -> str:
        path = [ROOT, *sorted((ROOT / "plugins").iterdir()), *folders]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env={"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin", **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def acme_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed tests/external_plugin."""
    target = tmp_path_factory.mktemp("acme_site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            *options,
            "--target",
            target,
            ROOT / "tests" / "external_plugin",
        ],
        check=True,
        timeout=120,
    )
    return target
