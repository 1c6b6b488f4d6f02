"""From words with variables to plain words, as bash would, without running anything."""

from __future__ import annotations

import ast
import glob
import importlib.util
import math
import operator
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from dlrl_launch_script.scanner import scan
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import Arithmetic, Part, ShellWord, SimpleCommand, Substitution, Text, Variable

_PYTHON = re.compile(r"python[\d.]*")
_IMPORT = re.compile(r"import (\w+)")
_INDEX = re.compile(r"@|\*|-?\d+")
_NAMES = re.compile(r"[A-Za-z_]\w*")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: lambda one, other: int(math.fmod(one, other)),
    ast.Div: lambda one, other: int(one / other),
}


def fields(word: ShellWord, state: ShellState) -> list[str]:
    """The words that one word becomes: an unquoted value is split where it has blanks."""
    done: list[str] = []
    current: str | None = None
    for part in word.parts:
        for number, value in enumerate(_values(part, state)):
            if number and current is not None:
                done.append(current)
                current = None
            if part.is_quoted or isinstance(part, Text):
                current = (current or "") + value
                continue
            first, *others = re.split(r"\s+", value)
            current = (current or "") + first if first else current
            for other in others:
                done += [current] if current is not None else []
                current = other or None
    done += [current] if current is not None else []
    return [_with_home(done[0], word, state), *done[1:]] if done else []


def joined(word: ShellWord, state: ShellState) -> str:
    """The word as one text, as on the right of an assignment."""
    text = "".join(" ".join(_values(part, state)) for part in word.parts)
    return _with_home(text, word, state)


def pattern_of(word: ShellWord, state: ShellState) -> str:
    """The word as a pattern of a `case`: what is quoted stands for itself."""
    texts = ((" ".join(_values(part, state)), part.is_quoted) for part in word.parts)
    return "".join(glob.escape(text) if is_quoted else text for text, is_quoted in texts)


def _with_home(text: str, word: ShellWord, state: ShellState) -> str:
    first = word.parts[0] if word.parts else None
    is_tilde = isinstance(first, Text) and not first.is_quoted and re.match(r"~(/|$)", first.text)
    home = state.get("HOME")
    return home[0] + text[1:] if is_tilde and home else text


def _values(part: Part, state: ShellState) -> list[str]:
    match part:
        case Text():
            return [part.text]
        case Variable():
            return _variable(part, state)
        case Arithmetic():
            return [_counted(part, state)]
        case Substitution():
            said = _printed(part, state)
            reason = f"$({' '.join(part.script.split())}) of line {part.line}"
            return [state.unreadable(reason) if said is None else said]


def _variable(part: Variable, state: ShellState) -> list[str]:
    if part.index is not None and not _INDEX.fullmatch(part.index):
        return [state.unreadable(part.source)]
    value = state.get(part.name, part.index)
    is_missing = value is None or (part.operator.startswith(":") and not any(value))
    match part.operator.removeprefix(":"):
        case "" if value is None and part.index not in ("@", "*"):
            state.unset.add(part.name)
            return [""]
        case "":
            found = value or []
            return [" ".join(found)] if part.index == "*" and part.is_quoted else found
        case "-" | "=" if is_missing:
            text = joined(part.other, state) if part.other else ""
            if part.operator.endswith("="):
                state.variables[part.name] = text
            return [text]
        case "-" | "=":
            return value or []
        case "+":
            return [] if is_missing or part.other is None else [joined(part.other, state)]
        case "?" if part.other is not None and not is_missing:
            return value or []
        case "?" if part.other is not None:
            state.required[part.name] = joined(part.other, state)
    return [state.unreadable(part.source)]


def _counted(part: Arithmetic, state: ShellState) -> str:
    text = joined(part.expression, state)
    named = _NAMES.sub(lambda name: " ".join(state.get(name[0]) or ["0"]), text)
    try:
        return str(_result(ast.parse(named.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return state.unreadable(part.source)


def _result(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_result(operand)
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _OPERATIONS:
            return _OPERATIONS[type(sign)](_result(left), _result(right))
    raise ValueError("not a simple sum")


# ---- what a few harmless commands print: the folder of the script, and the date


def _printed(part: Substitution, state: ShellState) -> str | None:
    """What `$(...)` stands for; None if that takes running a command."""
    folder, said, succeeds = state.folder, "", True
    for command in scan(part.script, part.line):
        if command.after in ("|", "&"):
            return None
        if command.after in ("&&", "||") and succeeds is not (command.after == "&&"):
            continue
        words = [text for word in command.words for text in fields(word, state)]
        if any(state.reasons(text) for text in words):
            return None
        succeeds = True
        if words[1:2] == ["--"]:
            del words[1]
        if words[:1] == ["cd"] and len(words) == 2:
            folder = Path(os.path.normpath(folder / words[1]))
        elif (module := _tried(words)) is not None:
            succeeds = importlib.util.find_spec(module) is not None
        else:
            answer = _answer(words, folder) if command.heredoc is None else _heredoc(words, command, state)
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


def _heredoc(words: list[str], command: SimpleCommand, state: ShellState) -> str | None:
    return "".join(fields(command.heredoc, state)) if command.heredoc and words == ["cat"] else None


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
