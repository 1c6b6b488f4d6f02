"""A machine on which nothing is installed but what a test says. Nothing of that can be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Level, Verdict

TORCH = {"cpu": "cuda: Optional[str] = None\n", "cuda": "cuda: Optional[str] = '13.0'\n"}


class BareMachine:
    """Its `site` is all that Python finds."""

    def __init__(self, folder: Path):
        self.folder = folder

    def install(self, name: str, version: str = "1.0", *, more: str = "", version_file: str = "") -> None:
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
        package = self.folder / name
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('somebody imported it')")
        (package / "version.py").write_text(version_file)

    def install_torch(self, build: str) -> None:
        """For the cpu, or for cuda."""
        self.install("torch", "2.13.0", version_file=TORCH[build])

    def install_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.install(name)


def examined(check: Callable[[DoctorRequest], Iterable[Verdict]]) -> tuple[list[str], list[str]]:
    """What is wrong, as 'seen -> todo'; what is right, as it was seen."""
    verdicts = list(check(DoctorRequest()))
    wrong = [f"{one.seen} -> {one.todo}" for one in verdicts if one.level is not Level.OK]
    return wrong, [one.seen for one in verdicts if one.level is Level.OK]
