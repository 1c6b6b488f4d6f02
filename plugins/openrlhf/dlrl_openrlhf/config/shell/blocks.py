"""The blocks that a command stands in: whether it would be run, and if that can't be told, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlrl_openrlhf.config.shell.condition import both, holds
from dlrl_openrlhf.config.shell.state import ShellState
from dlrl_openrlhf.config.shell.syntax import ShellWord

_LOOPS = ("for", "while", "until", "select")
_ENDS = ("fi", "done", "esac", "}")
_PASSED = ("do", "!", "time")
KEYWORDS = frozenset((*_LOOPS, *_ENDS, *_PASSED, "if", "then", "elif", "else", "case", "function", "{"))


@dataclass
class _Block:
    kind: str
    line: int
    is_run: bool | None
    """None: it can't be told."""
    was_run: bool | None = False
    """Whether an earlier branch was."""
    is_condition: bool = False


class Blocks:
    """All blocks that are open at this place of the script."""

    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._is_function = False

    @property
    def is_skipped(self) -> bool:
        """Whether it is certain that this place is not reached."""
        return any(block.is_run is False for block in self._open)

    @property
    def doubt(self) -> str | None:
        """Why it can't be told whether this place is reached, or how often; None if it is certain."""
        block = next((one for one in self._open if one.is_run is None), None)
        return f"it stands in a {block.kind} (line {block.line})" if block else None

    @property
    def is_condition(self) -> bool:
        """Whether this place only decides about a branch."""
        return any(block.is_condition for block in self._open)

    def keyword(self, word: str, rest: Sequence[ShellWord], line: int, state: ShellState) -> bool:
        """Takes note of a keyword; returns whether the rest of the command belongs to it."""
        match word:
            case "if":
                self._open.append(_Block("condition", line, holds(rest, state), is_condition=True))
                return True
            case "elif" | "then" | "else":
                return self._branch(word, rest, state)
            case "case" | "for" | "while" | "until" | "select":
                self._open.append(_Block("case" if word == "case" else "loop", line, None))
                return True
            case "function":
                self._is_function = all(one.literal != "{" for one in rest)
                if not self._is_function:
                    self._open.append(_Block("function", line, None))
                return True
            case "{":
                self._open.append(_Block("function", line, None) if self._is_function else _Block("group", line, True))
                self._is_function = False
            case "fi" | "done" | "esac" | "}" if self._open:
                self._open.pop()
        return False

    def refine(self, after: str, holds_too: bool | None) -> None:
        """Another part of the condition, behind `&&` or `||`."""
        block = self._open[-1]
        block.is_run = both(after, block.is_run, holds_too)

    def _branch(self, word: str, rest: Sequence[ShellWord], state: ShellState) -> bool:
        block = self._open[-1] if self._open else _Block("condition", 0, None)
        if word == "then":
            block.is_condition = False
            return False
        block.was_run = None if None in (block.was_run, block.is_run) else block.was_run or block.is_run
        block.is_condition = word == "elif"
        is_chosen = holds(rest, state) if word == "elif" else True
        block.is_run = False if block.was_run else None if block.was_run is None else is_chosen
        return word == "elif"
