"""Runs `dlrl` with a home and a temp folder of its own: in this process, or as a process where that matters."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from checks import short_temp_folder

ROOT = Path(__file__).parents[1]
PACED = Path(__file__).parent / "cli" / "jobs" / "paced.yaml"
DLRL = Path(sys.executable).parent / "dlrl"
MARK = "DLRL_TEST_MARK"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _OwnStream(io.StringIO):
    """Keeps what the command's own thread writes: Ray's threads print of workers that died, whenever they hear of it."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() == self._owner else len(text)


@dataclass
class Shell:
    """Runs `dlrl` in an environment that nothing outside the test reaches."""

    folder: Path
    """Short: Ray puts sockets below it, and their paths are limited."""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def temp(self) -> Path:
        return self.folder / "t"

    @property
    def home(self) -> Path:
        return self.folder / "dlrl"

    def environment(self, **env: str | None) -> dict[str, str]:
        """What a command gets; None takes a variable away."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DLRL_", "RAY_", "COLUMNS"))}
        own = {"DLRL_HOME": str(self.home), "HOME": str(self.folder), "TMPDIR": str(self.temp)}
        merged = {**kept, **own, "RAY_AUTH_MODE": "disabled", MARK: self.mark, **env}
        return {key: value for key, value in merged.items() if value is not None}

    def start(
        self, *words: str | Path, env: dict[str, str | None] | None = None, cwd: Path = ROOT
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(DLRL), *map(str, words)],
            cwd=cwd,
            env=self.environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str | Path, env: dict[str, str | None] | None = None, cwd: Path = ROOT) -> Ran:
        """How the command ends when its `main` is called in this process, as if it had just been started."""
        from dlrl_core.cli.app import main

        out, err = _OwnStream(), _OwnStream()
        with (
            _as_if_started(list(map(str, words)), self.environment(**(env or {}))),
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
        return Ran(int(end.value.code or 0), out.getvalue(), err.getvalue())

    def run_process(self, *words: str | Path, env: dict[str, str | None] | None = None, cwd: Path = ROOT) -> Ran:
        """How the installed command ends, in a process of its own."""
        process = self.start(*words, env=env, cwd=cwd)
        try:
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"dlrl {' '.join(map(str, words))} did not end\n{out}\n{err}")
        return Ran(process.returncode, out, err)

    def processes(self) -> list[str]:
        """Command lines of all living processes that this shell's commands started, at any depth."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
                if is_ours:
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found

    def temp_files(self) -> list[Path]:
        return list(self.temp.iterdir())


@contextlib.contextmanager
def new_shell() -> Iterator[Shell]:
    """A shell whose folder is gone after it."""
    folder = short_temp_folder()
    (folder / "t").mkdir()
    yield Shell(folder)
    shutil.rmtree(folder)


@contextlib.contextmanager
def _as_if_started(words: list[str], environment: dict[str, str]) -> Iterator[None]:
    """A new process would have these words, this environment and nothing of an earlier command in memory."""
    from dlrl_core.cli.app import app
    from dlrl_core.plugin import reset_plugin_host

    path, modules, commands = sys.path.copy(), set(sys.modules), app.registered_commands.copy()
    added = [folder for folder in environment.get("PYTHONPATH", "").split(":") if folder and folder not in path]
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["dlrl", *words]),
        mock.patch.object(tempfile, "tempdir", None),
    ):
        sys.path[:0] = added
        importlib.invalidate_caches()
        reset_plugin_host()
        try:
            yield
        finally:
            seen = tuple(folder for folder in sys.path if folder not in path)
            sys.path[:], app.registered_commands[:] = path, commands
            _forget(set(sys.modules) - modules, seen)
            reset_plugin_host()


def _forget(modules: set[str], folders: tuple[str, ...]) -> None:
    """Unload those modules that lie in folders which only one command saw."""
    for name in modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file and file.startswith(folders):
            del sys.modules[name]


def acme_path(folder: Path) -> str:
    """A PYTHONPATH on which the framework of tests/external_plugin is installed."""
    info = folder / "dlrl_acme-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlrl-acme\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\nacme = acme_rl.plugin\n")
    return f"{folder}:{ROOT / 'tests' / 'external_plugin'}"
