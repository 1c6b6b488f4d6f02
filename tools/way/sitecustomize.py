"""Notes which files of dlrl_core had a function entered, in each Python process with this folder on its path.

Python imports a module of this name at start, so that Ray's workers have it too. Modules of dlrl_core are compiled with
one more statement at the beginning of each function, which works in threads that Ray starts from C++ as well. A file is
noted at once, in a file of the process below `MEASURE_WAY`, because workers are killed without notice.
Functions that run while a module of dlrl_core is being imported do not count.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "dlrl_core"
NOTES = os.environ.get("MEASURE_WAY")
ENTERED = "__way_entered__"

seen: set[str] = set()
imports = threading.local()


def entered(file: str) -> None:
    """Note `file`, the first time that one of its functions runs outside of an import."""
    if file in seen or getattr(imports, "depth", 0) > 0 or NOTES is None:
        return
    seen.add(file)
    with (Path(NOTES) / str(os.getpid())).open("a") as notes:
        notes.write(f"{file}\n")


class Marked(ast.NodeTransformer):
    """Puts a call of `entered` at the beginning of each function, after its docstring."""

    def __init__(self, file: str) -> None:
        self.file = file

    def mark(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        name = ast.Name(ENTERED, ast.Load())
        call = ast.Expr(ast.Call(name, [ast.Constant(self.file)], []))
        node.body.insert(1 if ast.get_docstring(node, clean=False) is not None else 0, ast.copy_location(call, node))
        return ast.fix_missing_locations(node)

    visit_FunctionDef = mark  # noqa: N815 - the name that ast calls
    visit_AsyncFunctionDef = mark  # noqa: N815


class MarkingLoader(SourceFileLoader):
    """Compiles a module with its functions marked; never reads or writes cached bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        tree = Marked(self.path).visit(ast.parse(self.get_data(self.path), self.path))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        imports.depth = getattr(imports, "depth", 0) + 1
        try:
            super().exec_module(module)
        finally:
            imports.depth -= 1


class MarkingFinder:
    """Finds modules of the package as Python does, and gives them the marking loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = MarkingLoader(spec.loader.name, spec.loader.path)
        return spec


if NOTES is not None:
    setattr(builtins, ENTERED, entered)
    sys.meta_path.insert(0, MarkingFinder)
