"""A patch meets its module whenever that is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from dlrl_adapter_kit.after_import import after_import


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `late` with a module `late.part`; neither is imported yet."""
    folder = tmp_path / "late"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1")
    (folder / "part.py").write_text("value = 2")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in ("late", "late.part"):
        sys.modules.pop(name, None)


def double(module):
    module.value *= 2


@pytest.mark.usefixtures("package")
class TestAfterImport:
    def test_a_module_that_is_imported_later_is_patched_then(self):
        after_import("late", double)

        assert "late" not in sys.modules
        assert importlib.import_module("late").value == 2

    def test_a_module_that_is_there_is_patched_at_once(self):
        module = importlib.import_module("late")
        after_import("late", double)

        assert module.value == 2

    def test_all_within_a_package(self):
        after_import("late.*", double)

        assert (importlib.import_module("late").value, importlib.import_module("late.part").value) == (2, 4)

    def test_others_are_left_alone(self):
        after_import("late", double)

        assert importlib.import_module("late.part").value == 2

    def test_who_only_asks_whether_there_is_a_module_takes_no_patch_away(self):
        after_import("late.part", double)

        assert importlib.util.find_spec("late.part") is not None
        assert importlib.import_module("late.part").value == 4

    def test_several_patches_of_one_module(self):
        after_import("late", double)
        after_import("late.*", double)

        assert importlib.import_module("late").value == 4
