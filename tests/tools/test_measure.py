"""What `make measure` counts."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import measure

WAY = Path(measure.__file__).parent / "way"


@pytest.mark.parametrize(
    ("signature", "typed"),
    [
        ("def f(self, a: int, *b: int, c: int = 1, **d: int) -> None: ...", True),
        ("def f(a) -> None: ...", False),
        ("def f(a: int): ...", False),
        ("async def f(*a) -> None: ...", False),
    ],
)
def test_a_function_is_typed_if_all_of_it_is(signature, typed):
    [function] = ast.parse(signature).body

    assert measure.is_typed(function) is typed


def test_modules_and_functions_are_counted_in_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text("def f() -> None:\n    pass\n\n\ndef g(a):\n    b = a\n    return b\n")
    (tmp_path / "two.py").write_text("")

    size = measure.size_of(tmp_path)

    assert (len(size.modules), size.lines, size.median) == (2, 7, 2.5)
    assert (size.largest.place, size.largest.lines) == ("one.py:5 g", 3)
    assert size.untyped == [size.largest]


@pytest.mark.parametrize(
    ("code", "noted"),
    [
        ("import dlrl_core.hints", []),
        ("import dlrl_core.hints as h; h.did_you_mean('a', ['b'])", ["dlrl_core/hints.py"]),
        ("import threading, dlrl_core.hints as h; threading.Thread(target=h.did_you_mean, args=('a', [])).start()", ["dlrl_core/hints.py"]),
    ],
)  # fmt: skip
def test_a_file_is_on_the_way_if_a_function_of_it_runs_after_its_import(code, noted, tmp_path):
    path = os.pathsep.join([str(WAY), str(measure.ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "MEASURE_WAY": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)

    lines = [line for note in tmp_path.iterdir() for line in note.read_text().splitlines()]
    assert [str(Path(line).relative_to(measure.ROOT)) for line in lines] == noted
