"""The state of a shell while a script is read: variables, arguments, folder, and values that are not known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | list[str]

_MARK = re.compile("\ue000(\\d+)\ue001")


@dataclass
class ShellState:
    """Changes with each command of the script."""

    script: str
    """What `$0` is."""
    arguments: list[str]
    environ: Mapping[str, str]
    folder: Path
    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    unset: set[str] = field(default_factory=set)
    """Variables that were asked for and have no value."""
    required: dict[str, str] = field(default_factory=dict)
    """Variables without a value that the script can't do without, by `${NAME:?message}`, with their messages."""
    _reasons: list[str] = field(default_factory=list)

    def unreadable(self, reason: str) -> str:
        """A text that stands for a value that is not known; `reasons` finds it again in whatever is made of it."""
        self._reasons.append(reason)
        return f"\ue000{len(self._reasons) - 1}\ue001"

    def reasons(self, text: str) -> list[str]:
        """Why parts of this text are not known; empty if all of it is."""
        return [self._reasons[int(number)] for number in _MARK.findall(text)]

    def readable(self, text: str) -> str:
        """The text for people, with dots for what is not known."""
        return _MARK.sub("...", text)

    def get(self, name: str, index: str | None = None) -> list[str] | None:
        """The value, or the elements of an array; None if it is not set."""
        if name in ("@", "*"):
            return list(self.arguments)
        value = self._value(name)
        if value is None:
            return None
        elements = [value] if isinstance(value, str) else value
        if index in ("@", "*"):
            return elements
        at = int(index) if index else 0
        return elements[at : at + 1] or None

    def _value(self, name: str) -> Value | None:
        if name in ("0", "BASH_SOURCE"):
            return self.script
        if name == "#":
            return str(len(self.arguments))
        if name.isdigit():
            return self.arguments[int(name) - 1] if int(name) <= len(self.arguments) else None
        if name == "PWD":
            return str(self.folder)
        return self.variables.get(name, self.environ.get(name))
