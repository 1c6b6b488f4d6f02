"""Is that class there? Answered from the module's source: nothing of the user's is imported.

A module of user code often imports torch and a framework, which takes seconds; `dlrl plan` does without.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec

from dlrl_core.spec import ClassRef


def source_problems(owner: str, ref: ClassRef) -> list[str]:
    """Problems of a class the user named, as far as the text of its module shows them."""
    missing, spec = _find(ref.module)
    if missing is not None:
        return [f"{owner} is '{ref}': there is no module '{missing}'"]
    try:
        source = spec.loader.get_source(ref.module) if spec and isinstance(spec.loader, InspectLoader) else None
        tree = ast.parse(source) if source is not None else None
    except (OSError, ImportError, SyntaxError, ValueError) as error:
        return [f"{owner} is '{ref}', which can't be imported: {type(error).__name__}: {error}"]
    if tree is None:
        return []
    names = set(_bound_names(tree.body))
    if names & {ref.class_name, "*", "__getattr__"}:
        return []
    close = difflib.get_close_matches(ref.class_name, names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return [f"{owner} is '{ref}': module '{ref.module}' has no class '{ref.class_name}'{hint}"]


def _find(module: str) -> tuple[str | None, ModuleSpec | None]:
    """The name of the part that is not there, and the module's spec; its packages are not imported either."""
    spec, path = None, None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = _spec(name, path)
        if spec is None:
            return name, None
        path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return f"{name}.{parts[count]}", None
    return None, spec


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements at the top of a module bind; '*' where that can't be told."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                yield from _bound_names([node for node in ast.walk(statement) if isinstance(node, ast.stmt)][1:])
