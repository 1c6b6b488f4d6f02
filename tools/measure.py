"""How large the core is, and through how many of its files a job goes: python -m tools.measure [--way]

Exits with 1 if a figure is above its limit.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
CORE = ROOT / "dlrl_core"
WAY = Path(__file__).parent / "way"
LONG_MODULE = 400
MOST_MEDIAN = 6
MOST_FUNCTION = 50

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function or method, where it is, and how long."""

    place: str
    lines: int
    is_typed: bool


@dataclass(frozen=True, kw_only=True)
class Size:
    """What can be counted without running anything."""

    modules: dict[Path, int]
    functions: list[Function]

    @property
    def lines(self) -> int:
        return sum(self.modules.values())

    @property
    def largest(self) -> Function:
        return max(self.functions, key=lambda one: one.lines)

    @property
    def median(self) -> float:
        return median(one.lines for one in self.functions)

    @property
    def untyped(self) -> list[Function]:
        return [one for one in self.functions if not one.is_typed]


def is_typed(node: FunctionNode) -> bool:
    """Whether it has a return type and one for each argument, but for `self` and `cls`."""
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    needed = [one for one in every if one is not None and one.arg not in {"self", "cls"}]
    return node.returns is not None and all(one.annotation is not None for one in needed)


def functions_of(file: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, FunctionNode):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            place = f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
            yield Function(place=place, lines=lines, is_typed=is_typed(node))


def size_of(folder: Path) -> Size:
    files = sorted(folder.rglob("*.py"))
    modules = {file: len(file.read_text().splitlines()) for file in files}
    return Size(modules=modules, functions=[one for file in files for one in functions_of(file)])


def show_size(size: Size) -> None:
    typed = 1 - len(size.untyped) / len(size.functions)
    print(f"{CORE.name}: {len(size.modules)} files, {size.lines} lines, {len(size.functions)} functions")
    print(f"functions: median {size.median:g} lines, largest {size.largest.lines} ({size.largest.place})")
    print(f"typed: {typed:.1%}", *(one.place for one in size.untyped))
    long = [f"{file.relative_to(ROOT)} ({lines})" for file, lines in size.modules.items() if lines > LONG_MODULE]
    print(f"modules over {LONG_MODULE} lines: {', '.join(long) or 'none'}")


def files_on_the_way() -> list[Path]:
    """The files of the core that had a function entered in any process of a small job; takes a minute."""
    with tempfile.TemporaryDirectory(prefix="measure-") as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        path = os.pathsep.join([str(WAY), str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "MEASURE_WAY": str(notes), "DLRL_HOME": f"{folder}/home"}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, str(WAY / "way_job.py"), folder]
        subprocess.run(command, env=environment, check=True, timeout=300)
        noted = {line for note in notes.iterdir() for line in note.read_text().splitlines()}
    return sorted(Path(one) for one in noted)


def show_way(files: list[Path]) -> None:
    print(f"a job's way crosses {len(files)} files:")
    for file in files:
        print(f"  {file.relative_to(ROOT)}")


def above(name: str, value: float, limit: float) -> list[str]:
    return [f"{name}: {value:g}, limit {limit:g}"] if value > limit else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", action="store_true", help="also run a small job, and list the files it goes through")
    parser.add_argument("--most-lines", type=int, default=16500)
    parser.add_argument("--most-files", type=int, default=150)
    parser.add_argument("--most-way", type=int, default=60)
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    size = size_of(CORE)
    show_size(size)
    problems = [
        *above("files", len(size.modules), asked.most_files),
        *above("lines", size.lines, asked.most_lines),
        *above("lines of the median function", size.median, MOST_MEDIAN),
        *above("lines of the largest function", size.largest.lines, MOST_FUNCTION),
        *above("functions without types", len(size.untyped), 0),
    ]
    if asked.way:
        files = files_on_the_way()
        show_way(files)
        problems += above("files on a job's way", len(files), asked.most_way)
    for problem in problems:
        print(f"above its limit: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
