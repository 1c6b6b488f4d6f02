"""Definitions of dlrl_core and the plugins that nothing but tests uses: python -m tools.unused

A definition is used if its name is read anywhere outside of the definition itself: in our packages, examples,
benchmarks, the entry points of pyproject.toml, the Python code of the docs, or the reference pages, which list the
public API. Names are compared, not objects: of two methods with one name, both count as used if one is. Imports and
`__all__` are no use, as they only pass a name on. Exits with 1 if a definition is unused and not in `ALLOWED`, or if
`ALLOWED` has more than it needs.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEFINED_IN = ("dlrl_core", "plugins")
USED_IN = (*DEFINED_IN, "examples", "benchmarks")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = FunctionNode | ast.ClassDef

# What calls a definition that has one of these decorators is pluggy, typer, pydantic or functools, by registration.
REGISTERED_BY = {"hookimpl", "hookspec", "command", "callback", "register", "overload"}
REGISTERED_BY |= {"field_validator", "model_validator", "field_serializer", "model_serializer"}

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
CODE_WORD = re.compile(r"[\w.:/-]+")
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
INLINE_CODE = re.compile(r"`([^`\n]+)`")

# What calls a definition, if no code here does, and its name or a pattern of names.
ALLOWED: dict[str, tuple[str, ...]] = {
    "pytest runs them, in the conformance kit": ("test_*", "teardown_class"),
    "pickle calls it": ("reducer_override",),
    "a process looks for plugins once; tests look again": ("reset_plugin_host",),
    "the OpenRLHF adapter names the class by its role": ("ReferenceWorkload",),
    "OpenRLHF's trainer calls them; the adapter overrides them": (
        "_configure_device_env",
        "init_checkpoint_states",
        "save_best_checkpoint",
        "save_logs_and_checkpoints",
    ),
    "OpenRLHF calls them in vLLM's worker, by name": ("init_process_group", "update_weight"),
    "verl's trainer and worker groups call them; the adapter overrides them": (
        "_execute_remote_single_worker",
        "_load_checkpoint",
        "create_resource_pool",
        "spawn",
    ),
    "verl's servers, reward loop and weight transfer call them; the adapter overrides them or stands for their class": (
        "_init_buffer",
        "_make_async_request",
        "_on_startup",
        "async_send_weights",
        "compute_score",
        "compute_score_batch",
        "init_colocated",
        "recv_pyobj",
        "resume",
        "send",
        "set_global_steps",
    ),
    "socketserver calls it": ("handle_error",),
    "DeepSpeed calls them on the checkpoint engine that the adapter stands for": ("get_sd_loader", "makedirs"),
    "the decoder looks them up by the kind of an encoded value": (
        "_bytes",
        "_dtype",
        "_float",
        "_pairs",
        "_scalar",
        "_tuple",
    ),
    "verl asks its platform, and torch its device; the adapter stands for both without a GPU": (
        "communication_backend_name",
        "cudart",
        "get_device_name",
        "get_device_capability",
        "is_ipc_supported",
        "mem_get_info",
        "nvtx_range",
        "profiler_start",
        "profiler_stop",
        "ray_noset_envvars",
        "ray_resource_name",
        "set_allocator_settings",
        "set_device",
        "visible_devices_envvar",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A function, method, class or module constant, and how often its own body reads its name."""

    name: str
    place: str
    own_uses: int


def names_read(tree: ast.AST) -> Counter[str]:
    """How often each name is read below `tree`: as a name, an attribute, an argument's name, or a word in a string."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(one) for one in statements if isinstance(one, ast.Constant)}
    exported = {id(one) for node in ast.walk(tree) if is_export(node) for one in ast.walk(node)}
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if id(node) not in docstrings | exported:
            found.update(read_by(node))
    return found


def is_export(node: ast.AST) -> bool:
    """Whether this assigns a list of names that a package passes on."""
    names = [one.id for one in getattr(node, "targets", []) if isinstance(one, ast.Name)]
    return isinstance(node, ast.Assign) and names in (["__all__"], ["_HOMES"])


def read_by(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            return [name]
        case ast.Constant(value=str(text)) if CODE_WORD.fullmatch(text):
            return IDENTIFIER.findall(text)
        case _:
            return []


def definitions(file: Path, tree: ast.Module) -> Iterator[Definition]:
    for node in ast.walk(tree):
        if isinstance(node, DefinitionNode) and not is_registered(node):
            yield definition(file, node.name, node)
    for statement in tree.body:
        yield from (definition(file, name, statement) for name in constants(statement))


def definition(file: Path, name: str, node: ast.stmt) -> Definition:
    return Definition(name=name, place=f"{file.relative_to(ROOT)}:{node.lineno}", own_uses=names_read(node)[name])


def constants(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    else:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def is_registered(node: DefinitionNode) -> bool:
    names = {name for decorator in node.decorator_list for name in names_read(decorator)}
    return bool(names & REGISTERED_BY)


def documented() -> set[str]:
    """The public API: names of `dlrl_core.__all__`, of Python code in the docs, and of the reference pages."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    code = [block for page in pages for block in PYTHON_BLOCK.findall(page.read_text())]
    reference = [page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")]
    code += [word for page in reference for word in INLINE_CODE.findall(page)]
    exports = re.search(r"__all__ = \[(.*?)\]", (ROOT / "dlrl_core" / "__init__.py").read_text(), re.DOTALL)
    return {name for text in [*code, exports[1] if exports else ""] for name in IDENTIFIER.findall(text)}


def entry_points() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    return {name for group in groups for target in group.values() for name in IDENTIFIER.findall(target)}


def unused() -> list[Definition]:
    """All definitions that nothing uses, in the order of their places."""
    trees = {file: ast.parse(file.read_text()) for folder in USED_IN for file in sorted((ROOT / folder).rglob("*.py"))}
    uses: Counter[str] = sum((names_read(tree) for tree in trees.values()), Counter())
    public = documented() | entry_points()
    found = [
        one
        for file, tree in trees.items()
        if file.relative_to(ROOT).parts[0] in DEFINED_IN
        for one in definitions(file, tree)
    ]
    return [one for one in found if uses[one.name] <= one.own_uses and one.name not in public and not is_dunder(one)]


def is_dunder(one: Definition) -> bool:
    return one.name.startswith("__") and one.name.endswith("__")


def allowed() -> list[str]:
    return [pattern for patterns in ALLOWED.values() for pattern in patterns]


def main() -> int:
    found = unused()
    problems = [
        f"{one.place} '{one.name}' is used by nothing but tests"
        for one in found
        if not any(fnmatch(one.name, pattern) for pattern in allowed())
    ]
    problems += [
        f"tools/unused.py allows '{pattern}', which is used, or is not there; remove it"
        for pattern in allowed()
        if not any(fnmatch(one.name, pattern) for one in found)
    ]
    print("\n".join(problems) or "every definition is used")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
