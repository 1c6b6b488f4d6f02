"""OpenRLHF's own parser and its own checks, taken from the installed package without importing it.

Its command builds the parser and checks the result inside `if __name__ == "__main__"`, above a call of `train(args)`.
Those statements are run here one part at a time, with the standard library alone: no torch, no Ray.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, NoReturn

from dlrl_core.errors import FrameworkUnavailableError, SpecError

_log = logging.getLogger("dlrl")


def is_installed() -> bool:
    """Whether this Python has an OpenRLHF with a PPO command."""
    return _command_file() is not None


def own_parser() -> argparse.ArgumentParser:
    """OpenRLHF's parser, except that it raises SpecError where it would end the process."""
    return _built_parser({})


def own_namespace(argv: Sequence[str]) -> SimpleNamespace:
    """What OpenRLHF's `train` would get for these words; raises SpecError with its message if it refuses them."""
    names: dict[str, Any] = {}
    parsed = _built_parser(names).parse_args(list(argv))
    names["args"] = _hierarchize(parsed)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(_command(_found_file()).checks, names)
    except Exception as error:
        raise SpecError([f"openrlhf refuses the config: {_reason(error)}"]) from error
    finally:
        for line in printed.getvalue().splitlines():
            _log.info("openrlhf: %s", line)
    args: SimpleNamespace = names["args"]
    return args


@dataclass(frozen=True, kw_only=True)
class _Command:
    """The two parts of the command that can run without its heavy imports."""

    parser: CodeType
    checks: CodeType


def _command_file() -> Path | None:
    """Of the installed distribution, before any clone that happens to be the current folder."""
    try:
        distribution = importlib.metadata.distribution("openrlhf")
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("openrlhf")  # where an editable install is
    folders = [str(distribution.locate_file("openrlhf")), *(spec.submodule_search_locations or () if spec else ())]
    files = (Path(folder, "cli", "train_ppo_ray.py") for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _found_file() -> Path:
    file = _command_file()
    if file is None:
        raise FrameworkUnavailableError("openrlhf is not installed here; run: pip install 'dlrl[openrlhf]'")
    return file


def _built_parser(names: dict[str, Any]) -> argparse.ArgumentParser:
    exec(_command(_found_file()).parser, names)
    parser: argparse.ArgumentParser = names["parser"]
    parser.error = _refuse  # type: ignore[method-assign]
    return parser


def _refuse(message: str) -> NoReturn:
    raise SpecError([f"openrlhf refuses the config: {message}"])


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) and str(error) else f"{type(error).__name__}: {error}"


def _hierarchize(parsed: argparse.Namespace) -> SimpleNamespace:
    """By OpenRLHF's own function, from a module that needs the standard library alone."""
    file = _found_file().parents[1] / "utils" / "config.py"
    spec = importlib.util.spec_from_file_location("_openrlhf_config", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    nested: SimpleNamespace = module.hierarchize(parsed)
    return nested


@functools.cache
def _command(file: Path) -> _Command:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    main = next((one.body for one in tree.body if isinstance(one, ast.If) and "__main__" in ast.dump(one.test)), [])
    parses = next((at for at, one in enumerate(main) if "parse_args" in ast.dump(one)), None)
    if parses is None:
        raise FrameworkUnavailableError(
            f"'{file}' does not build its parser where dlrl looks for it; use a version that dlrl supports"
        )
    imports = [one for one in tree.body if _is_light_import(one)]
    checks = [one for one in main[parses + 1 :] if not _is_left_out(one)]
    return _Command(parser=_compiled([*imports, *main[:parses]], file), checks=_compiled(checks, file))


def _compiled(body: list[ast.stmt], file: Path) -> CodeType:
    return compile(ast.Module(body=body, type_ignores=[]), str(file), "exec")


def _is_light_import(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import(names=[ast.alias(name=name), *_]) | ast.ImportFrom(module=str(name)):
            return name.partition(".")[0] in sys.stdlib_module_names
    return False


def _is_left_out(statement: ast.stmt) -> bool:
    """Nesting the namespace, which is done already; and what acts instead of checking: training, patching a hub."""
    text = ast.unparse(statement)
    return text.startswith(("from openrlhf", "args = hierarchize", "train(", "if args.use_ms:"))
