"""Which definitions `make lint` names as unused."""

from __future__ import annotations

import pytest

from tools import unused

FILES = {
    "pyproject.toml": '[project.scripts]\nx = "dlrl_core.a:main"\n[project.entry-points.dlrl]\n',
    "README.md": "```python\ndocumented()\n```\n",
    "docs/reference/page.md": "`listed` and more",
    "dlrl_core/__init__.py": "from dlrl_core.a import passed_on\n__all__ = [\n    'public',\n]\n",
}


@pytest.fixture
def names(tmp_path, monkeypatch):
    """The names that are unused, if this is all of `dlrl_core/a.py`, and of a benchmark."""

    def find(code: str, benchmark: str = "") -> list[str]:
        for name, text in {**FILES, "dlrl_core/a.py": code, "benchmarks/b.py": benchmark}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(unused, "ROOT", tmp_path)
        return [one.name for one in unused.unused()]

    return find


@pytest.mark.parametrize("name", ["main", "documented", "listed", "public", "__str__"])
def test_what_others_reach_is_used(names, name):
    assert names(f"def {name}(): ...") == []


@pytest.mark.parametrize("use", ["f()", "x.f", "getattr(x, 'f')", "print('a.f:g')"])
def test_a_name_that_is_read_elsewhere_is_used(names, use):
    assert names("def f(): ...", benchmark=use) == []


@pytest.mark.parametrize("use", ["import f", "f = 1", "x.f = 1", "'a sentence with f'", "'''f'''"])
def test_a_name_that_is_imported_assigned_or_mentioned_is_not(names, use):
    assert names("def f(): ...", benchmark=use) == ["f"]


@pytest.mark.parametrize(
    "code",
    ["def f(): f()", "class f:\n    def __init__(self) -> f: ...", "f = 1", "f: int = 1", "class main:\n    def f(self): ...", "def passed_on(): ..."],
)  # fmt: skip
def test_functions_methods_classes_and_constants_are_found(names, code):
    assert names(code) in (["f"], ["passed_on"])


def test_what_is_registered_by_a_decorator_is_used(names):
    assert names("@hookimpl\ndef f(): ...\n@app.command()\ndef g(): ...") == []
