"""The syntax of a script as far as launch scripts need it, and the reading of its expansions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_BRACES = re.compile(r"(#?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?(:?[-=+?])?(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "e": "\x1b", "a": "\a", "b": "\b"}


@dataclass(frozen=True)
class Text:
    """Characters that stand for themselves."""

    text: str
    is_quoted: bool


@dataclass(frozen=True)
class Variable:
    """`$NAME`, `${NAME}`, `${NAME:-other}`, `${NAME[@]}` and their relatives."""

    name: str
    index: str | None
    """What stands in brackets: '@', '*' or a number."""
    operator: str
    """':-' and the like; empty for a plain one."""
    other: ShellWord | None
    """What stands behind the operator."""
    source: str
    is_quoted: bool


@dataclass(frozen=True)
class Substitution:
    """`$(...)`: what a command would print."""

    script: str
    line: int
    is_quoted: bool


@dataclass(frozen=True)
class Arithmetic:
    """`$((...))`."""

    expression: ShellWord
    source: str
    is_quoted: bool


Part = Text | Variable | Substitution | Arithmetic


@dataclass(frozen=True)
class ShellWord:
    """One word before expansion. Of an array, `elements` stand behind its name and '='."""

    parts: tuple[Part, ...]
    line: int
    elements: tuple[ShellWord, ...] | None = None

    @property
    def literal(self) -> str | None:
        """The word if it is plain and unquoted, as keywords are."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text) and not self.parts[0].is_quoted:
            return self.parts[0].text
        return None


@dataclass(frozen=True)
class SimpleCommand:
    """A command with its words, keywords such as `if` included. Redirections are dropped, but for heredocs."""

    words: tuple[ShellWord, ...]
    line: int
    after: str
    """The operator that stands before it: '\\n', ';', '&&', '||', '|', '&', '(' or ')'."""
    heredoc: ShellWord | None = None


# ---- expansions


ReadsQuoted = Callable[[str, int], ShellWord]


def scan_dollar(text: str, at: int, line: int, *, is_quoted: bool, read: ReadsQuoted) -> tuple[Part, int]:
    """The expansion that begins at `at`, and where it ends. `read` reads text as if in double quotes."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        end = len(text) if end < 0 else end
        return Substitution(text[at + 1 : end].replace("\\`", "`"), line, is_quoted), end + 1
    if text.startswith("$((", at):
        end = closing(text, at + 1, "(", ")")
        inside = text[at + 3 : end - 1]
        return Arithmetic(read(inside, line), f"$(({inside}))", is_quoted), end + 1
    if text.startswith("$(", at):
        end = closing(text, at + 1, "(", ")")
        return Substitution(text[at + 2 : end], line, is_quoted), end + 1
    if text.startswith("${", at):
        end = closing(text, at + 1, "{", "}")
        return _braces(text[at + 2 : end], line, is_quoted, read), end + 1
    if not is_quoted and text.startswith("$'", at):
        return _ansi(text, at + 2)
    if not is_quoted and text.startswith('$"', at):
        return Text("", True), at + 1
    found = _NAME.match(text, at)
    if found is None:
        return Text("$", is_quoted), at + 1
    index = found[1] if found[1] in "@*" else None
    return Variable(found[1], index, "", None, found[0], is_quoted), found.end()


def closing(text: str, at: int, opener: str, closer: str) -> int:
    """Where the bracket at `at` is closed; the end of the text if nowhere."""
    depth, quote = 0, ""
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif quote:
            if char == quote:
                quote = ""
            elif quote == '"' and text.startswith("$(", at):
                at = closing(text, at + 1, "(", ")")
        elif char in "'\"":
            quote = char
        elif char == opener:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text)


def _braces(inside: str, line: int, is_quoted: bool, read: ReadsQuoted) -> Variable:
    source = f"${{{inside}}}"
    found = _BRACES.fullmatch(inside)
    if found is None:
        return Variable(inside, None, "?", None, source, is_quoted)
    length, name, index, operator, rest = found.groups()
    if length or (rest and not operator):
        return Variable(name, index, "?", None, source, is_quoted)
    index = name if name in "@*" else index
    other = read(_unquoted(rest), line) if operator else None
    return Variable(name, index, operator or "", other, source, is_quoted)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _ansi(text: str, at: int) -> tuple[Part, int]:
    """`$'...'`, in which `\\n` is a line break."""
    read = ""
    while at < len(text) and text[at] != "'":
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            read += _ESCAPES.get(text[at], f"\\{text[at]}")
        else:
            read += text[at]
        at += 1
    return Text(read, True), at + 1
