"""What a script is made of, as far as launch scripts need it."""

from __future__ import annotations

from dataclasses import dataclass


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
