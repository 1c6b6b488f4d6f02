"""Checks of the classes that a user named, before anything starts: by importing them, or from their source alone.

A module of user code often imports torch and a framework, which takes seconds; `dlrl plan` reads its source instead.
"""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec

from dlrl_core.hints import did_you_mean
from dlrl_core.spec import ClassRef

logger = logging.getLogger("dlrl")


def class_problems(owner: str, ref: ClassRef, *, is_trainer: bool) -> list[str]:
    """Problems of a class, which is imported. A module whose own dependency is missing here is left for the workers."""
    from dlrl_core.workload.invocation import load_class

    if ref.module == "__main__":
        return [f"{owner} is '{ref}': other processes can't import '__main__'; put the class into a module"]
    try:
        found = load_class(ref)
    except ModuleNotFoundError as error:
        if error.name is not None and (ref.module == error.name or ref.module.startswith(f"{error.name}.")):
            return [f"{owner} is '{ref}': there is no module '{error.name}'"]
        logger.info("%s is '%s', not checked here: module '%s' is missing", owner, ref, error.name)
        return []
    except Exception as error:  # noqa: BLE001 - importing runs user code: whatever it raises is the problem
        return [f"{owner} is '{ref}', which can't be imported: {type(error).__name__}: {error}"]
    return _base_problems(owner, ref, found, is_trainer=is_trainer)


def _base_problems(owner: str, ref: ClassRef, found: type, *, is_trainer: bool) -> list[str]:
    if is_trainer:
        from dlrl_core.trainer import BaseTrainer

        if not issubclass(found, BaseTrainer):
            return [f"{owner} is '{ref}', which does not extend dlrl_core.BaseTrainer"]
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            return [f"{owner} is '{ref}', which does not define {', '.join(f'{name!r}' for name in missing)}"]
        return []
    from dlrl_core.workload import BaseWorkload

    return (
        [] if issubclass(found, BaseWorkload) else [f"{owner} is '{ref}', which does not extend dlrl_core.BaseWorkload"]
    )


def source_problems(owner: str, ref: ClassRef) -> list[str]:
    """Problems of a class, as far as the source of its module shows them; nothing of the user's is imported."""
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
    hint = did_you_mean(ref.class_name, names).rstrip(";")
    return [f"{owner} is '{ref}': module '{ref.module}' has no class '{ref.class_name}'{hint}"]


def _find(module: str) -> tuple[str | None, ModuleSpec | None]:
    """The first package or module of the dotted name that is missing, else None, and the module's spec."""
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
