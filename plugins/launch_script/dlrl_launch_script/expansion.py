"""From words with variables to plain words, as bash would, without running anything."""

from __future__ import annotations

import ast
import glob
import math
import operator
import re
from collections.abc import Callable

from dlrl_launch_script.printed import printed
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import Arithmetic, Part, ShellWord, Substitution, Text, Variable

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
            said = printed(part, state, fields)
            reason = f"$({' '.join(part.script.split())}) of line {part.line}"
            return [state.unreadable(reason) if said is None else said]


def _variable(part: Variable, state: ShellState) -> list[str]:
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
