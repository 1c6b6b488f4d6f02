"""Patches that are applied to a module when it is imported."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

Patch = Callable[[Any], None]


def after_import(name: str, patch: Patch) -> None:
    """Call `patch` with the module: now if it is imported, else when it is. `a.b.*` is a package and all in it."""
    waiting = _AfterImport(name, patch)
    for imported in [one for one in sys.modules if waiting.is_for(one)]:
        patch(sys.modules[imported])
    sys.meta_path.insert(0, waiting)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Has the other finders find the module, and adds the patch to its execution.

    It stays in place after that: a spec may also be asked for only to see whether there is such a module.
    """

    def __init__(self, name: str, patch: Patch) -> None:
        self._name = name.removesuffix(".*")
        self._within = name.endswith(".*")
        self._patch = patch
        self._asking: set[str] = set()

    def is_for(self, name: str) -> bool:
        return name == self._name or (self._within and name.startswith(f"{self._name}."))

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not self.is_for(name) or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.remove(name)
        if spec is not None and spec.loader is not None:
            self._add_patch(spec.loader)
        return spec

    def _add_patch(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._patch(module)

        loader.exec_module = exec_module
