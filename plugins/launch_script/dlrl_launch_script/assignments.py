"""What gives variables their values. Where it is not certain that it is run, they become unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlrl_launch_script.expansion import fields, joined
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import ShellWord, SimpleCommand, Text

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_NAME = re.compile(r"[A-Za-z_]\w*")


def assignment(word: ShellWord) -> re.Match[str] | None:
    """Name, index and sign of `NAME=...`; None for any other word."""
    first = word.parts[0] if word.parts else None
    return _ASSIGNMENT.match(first.text) if isinstance(first, Text) and not first.is_quoted else None


def assign(word: ShellWord, state: ShellState, *, is_certain: bool) -> None:
    """`NAME=value`, `NAME+=value`, `NAME=(elements)`."""
    found = assignment(word)
    assert found is not None
    name, index, sign = found.groups()
    if not is_certain or index:
        forget(name, state, word.line)
        return
    before = state.variables.get(name, "") if sign == "+=" else ""
    if word.elements is not None:
        kept = before if isinstance(before, list) else [before] if before else []
        state.variables[name] = [*kept, *(text for one in word.elements for text in fields(one, state))]
    else:
        state.variables[name] = (before if isinstance(before, str) else " ".join(before)) + right_of(word, state)


def right_of(word: ShellWord, state: ShellState) -> str:
    """What stands behind the '='."""
    text = joined(word, state)
    value = text[text.index("=") + 1 :]
    home = state.get("HOME")
    return home[0] + value[1:] if home and re.match(r"~(/|$)", value) else value


def forget(name: str, state: ShellState, line: int) -> None:
    """From here on, nobody knows the value."""
    state.variables[name] = state.unreadable(f"${name} as of line {line}")


def declare(words: Sequence[ShellWord], state: ShellState, *, is_export: bool, is_certain: bool) -> None:
    """`export NAME=value`, `export NAME`, `declare -a NAME=(elements)`."""
    for word in words:
        if found := assignment(word):
            assign(word, state, is_certain=is_certain)
        name = found[1] if found else word.literal or ""
        if is_export and _NAME.fullmatch(name):
            state.exported.add(name)


def read_into(words: Sequence[str], command: SimpleCommand, state: ShellState, *, is_certain: bool) -> None:
    """`read -r -d '' NAME <<EOF` keeps the text; any other `read` asks somebody."""
    names = [word for word in words if _NAME.fullmatch(word)]
    for name in names:
        if command.heredoc is not None and "-d" in words and len(names) == 1 and is_certain:
            state.variables[name] = joined(command.heredoc, state).strip()
        else:
            forget(name, state, command.line)
