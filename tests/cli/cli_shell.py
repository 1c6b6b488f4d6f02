"""Runs the real `dlrl` command, in processes of its own, with a home and a temp folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PACED = Path(__file__).parent / "jobs" / "paced.yaml"
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


def acme_path(folder: Path) -> str:
    """A PYTHONPATH on which the framework of tests/external_plugin is installed."""
    info = folder / "dlrl_acme-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlrl-acme\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[dlrl]\nacme = acme_rl.plugin\n")
    return f"{folder}:{ROOT / 'tests' / 'external_plugin'}"
