"""What a few harmless commands would print: those that launch scripts find their own folder with, and the date."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from dlrl_launch_script.scanner import scan
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import ShellWord, SimpleCommand, Substitution

Expands = Callable[[ShellWord, ShellState], list[str]]

_PYTHON = re.compile(r"python[\d.]*")
_IMPORT = re.compile(r"import (\w+)")


def printed(part: Substitution, state: ShellState, expand: Expands) -> str | None:
    """What `$(...)` stands for; None if that takes running a command."""
    folder, said, succeeds = state.folder, "", True
    for command in scan(part.script, part.line):
        if command.after in ("|", "&"):
            return None
        if command.after in ("&&", "||") and succeeds is not (command.after == "&&"):
            continue
        words = [text for word in command.words for text in expand(word, state)]
        if any(state.reasons(text) for text in words):
            return None
        succeeds = True
        if words[:1] == ["cd"] and len(words) == 2:
            folder = Path(os.path.normpath(folder / words[1]))
        elif (module := _tried(words)) is not None:
            succeeds = importlib.util.find_spec(module) is not None
        else:
            answer = _answer(words, folder) if command.heredoc is None else _heredoc(words, command, state, expand)
            if answer is None:
                return None
            said += f"{answer}\n"
    return said.rstrip("\n")


def _tried(words: list[str]) -> str | None:
    """The module of `python3 -c 'import module'`, by which scripts ask whether it is installed."""
    match words:
        case [python, "-c", code] if _PYTHON.fullmatch(python) and (found := _IMPORT.fullmatch(code.strip())):
            return found[1]
    return None


def _heredoc(words: list[str], command: SimpleCommand, state: ShellState, expand: Expands) -> str | None:
    return "".join(expand(command.heredoc, state)) if command.heredoc and words == ["cat"] else None


def _answer(words: list[str], folder: Path) -> str | None:
    match words:
        case ["pwd", *_]:
            return str(folder)
        case ["echo", *texts]:
            return " ".join(texts)
        case ["dirname", path]:
            return os.path.dirname(path.rstrip("/")) or "."  # noqa: PTH120 - Path drops a leading './'
        case ["basename", path, *ending]:
            return Path(path).name.removesuffix(ending[0] if ending else "")
        case ["realpath", path] | ["readlink", "-f", path]:
            return os.path.normpath(folder / path)
        case ["date"]:
            return time.strftime("%a %b %e %H:%M:%S %Z %Y")
        case ["date", pattern] if pattern.startswith("+"):
            return time.strftime(pattern[1:])
    return None
