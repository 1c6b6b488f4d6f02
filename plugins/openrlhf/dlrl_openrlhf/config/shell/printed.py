"""What a few harmless commands would print: those that launch scripts find their own folder with, and the date."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from dlrl_openrlhf.config.shell.scanner import scan
from dlrl_openrlhf.config.shell.state import ShellState
from dlrl_openrlhf.config.shell.syntax import ShellWord, Substitution

Expands = Callable[[ShellWord, ShellState], list[str]]


def printed(part: Substitution, state: ShellState, expand: Expands) -> str | None:
    """What `$(...)` stands for; None if that takes running a command."""
    folder, said = state.folder, ""
    for command in scan(part.script, part.line):
        words = [text for word in command.words for text in expand(word, state)]
        if command.after in ("|", "||", "&") or any(state.reasons(text) for text in words):
            return None
        if command.heredoc is not None:
            if words != ["cat"]:
                return None
            said = "".join(expand(command.heredoc, state))
        elif words[:1] == ["cd"] and len(words) == 2:
            folder = Path(os.path.normpath(folder / words[1]))
        else:
            answer = _answer(words, folder)
            if answer is None:
                return None
            said = answer
    return said.rstrip("\n")


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
