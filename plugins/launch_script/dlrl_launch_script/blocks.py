"""Conditions and the blocks that depend on them: whether bash would run a command, and if that can't be told, why."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrl_launch_script.expansion import fields, joined, pattern_of
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import ShellWord, SimpleCommand

_NUMBERS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_LOOPS = ("for", "while", "until", "select")
_ENDS = ("fi", "done", "esac", "}")
_PASSED = ("do", "time")
KEYWORDS = frozenset((*_LOOPS, *_ENDS, *_PASSED, "if", "then", "elif", "else", "case", "function", "{"))


@dataclass
class _Block:
    kind: str
    line: int
    is_run: bool | None
    """Whether bash would run the current branch; None if that can't be told."""
    was_run: bool | None = False
    """Whether bash would have run an earlier branch."""
    is_condition: bool = False
    """Whether the commands that follow are the condition of a branch."""
    answer: bool | None = None
    """Whether the condition, or the pattern of a case, holds so far."""
    is_first: bool = True
    """Whether no part of the condition was judged yet."""
    after: str = ""
    """The operator before a group of conditions."""
    subject: str | None = None
    """What a case looks at; None if that is not known."""
    unset: frozenset[str] = frozenset()
    """Variables of its condition that have no value."""

    def __str__(self) -> str:
        return f"it stands in a {self.kind} (line {self.line}){on_unset(self.unset)}"

    def choose(self) -> None:
        """The condition is over: the branch is run if it holds and none before it was."""
        self.is_condition = False
        self.is_run = both("&&", opposite(self.was_run), self.answer)

    def leave(self) -> None:
        """The branch is over."""
        self.was_run = both("||", self.was_run, self.is_run)
        self.is_condition = self.is_first = True
        self.answer = None

    def say(self, sign: str, answer: bool | None) -> None:
        self.answer = answer if self.is_first else both(sign, self.answer, answer)
        self.is_first = False


class Blocks:
    """All blocks that are open at this place of the script."""

    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._is_function = False

    @property
    def is_skipped(self) -> bool:
        """Whether it is certain that this place is not reached."""
        return any(block.is_run is False for block in self._open if not block.is_condition)

    @property
    def doubt(self) -> str | None:
        """Why it can't be told whether this place is reached, or how often; None if it is certain."""
        block = next((one for one in self._open if one.is_run is None and not one.is_condition), None)
        return str(block) if block else None

    @property
    def obstacle(self) -> str:
        """Why this place is not reached, if `is_skipped`."""
        return next(str(one) for one in self._open if one.is_run is False and not one.is_condition)

    @property
    def is_condition(self) -> bool:
        """Whether this place only decides about a branch."""
        return any(block.is_condition for block in self._open)

    def keyword(self, word: str, rest: Sequence[ShellWord], command: SimpleCommand, state: ShellState) -> bool:
        """Open, close or change a block; returns whether the rest of the command belongs to the keyword."""
        match word:
            case "if":
                self._open.append(_Block("condition", command.line, None, is_condition=True))
            case "elif" | "then" | "else" if self._open:
                self._branch(word)
            case "case":
                self._case(rest, command.line, state)
                return True
            case "for" | "while" | "until" | "select":
                self._open.append(_Block("loop", command.line, None))
                return True
            case "function":
                self._is_function = all(one.literal != "{" for one in rest)
                if not self._is_function:
                    self._open.append(_Block("function", command.line, None))
                return True
            case "{":
                self._group(command)
            case "fi" | "done" | "esac" | "}" if self._open:
                self._close()
        return False

    def refine(self, after: str, answer: bool | None, unset: Iterable[str]) -> None:
        """Another part of the condition, behind `&&` or `||`, and its variables that have no value."""
        self._open[-1].say(after, answer)
        for block in self._open:
            block.unset |= frozenset(unset) if block.is_condition else frozenset()

    def is_pattern(self, command: SimpleCommand, state: ShellState) -> bool:
        """Whether the command is a pattern of a `case`; if so, it is matched."""
        block = self._open[-1] if self._open else None
        if block is None or block.kind != "case" or command.words[0].literal == "esac":
            return False
        if command.after == ";;":
            if block.is_condition:  # nothing stood behind the pattern before
                block.choose()
            block.leave()
        elif command.after == ")" and block.is_condition:
            block.choose()
        if block.is_condition:
            self._match(block, command.words, state)
        return block.is_condition

    def _branch(self, word: str) -> None:
        block = self._open[-1]
        if word == "then":
            block.choose()
            return
        block.leave()
        if word == "else":
            block.say("", True)
            block.choose()

    def _group(self, command: SimpleCommand) -> None:
        if self.is_condition:
            self._open.append(_Block("group", command.line, None, is_condition=True, after=command.after))
        elif self._is_function:
            self._open.append(_Block("function", command.line, None))
        else:
            self._open.append(_Block("group", command.line, True))
        self._is_function = False

    def _close(self) -> None:
        block = self._open.pop()
        if block.kind == "group" and block.is_condition and self._open:
            self._open[-1].say(block.after, block.answer)

    def _case(self, rest: Sequence[ShellWord], line: int, state: ShellState) -> None:
        """`case SUBJECT in`, and the first pattern if it stands on the same line."""
        state.unset.clear()
        subject = joined(rest[0], state) if rest else ""
        is_known = not state.unset and not state.reasons(subject)
        block = _Block("case", line, None, is_condition=True, subject=subject if is_known else None)
        block.unset = frozenset(state.unset)
        self._open.append(block)
        self._match(block, rest[2:], state)

    def _match(self, block: _Block, patterns: Sequence[ShellWord], state: ShellState) -> None:
        for pattern in (pattern_of(word, state) for word in patterns):
            is_known = block.subject is not None and not state.reasons(pattern)
            block.say("||", fnmatch.fnmatchcase(block.subject or "", pattern) if is_known else None)


# ---- conditions


def on_unset(names: Iterable[str]) -> str:
    """The end of a sentence about a condition: its variables that have no value."""
    listed = ", ".join(f"'${name}'" for name in sorted(names))
    return f" on {listed}, which is not set" if listed else ""


def holds(words: Sequence[ShellWord], state: ShellState) -> bool | None:
    """Whether a condition holds; None if that can't be told from the script and the environment."""
    if not words:
        return None
    if words[0].literal == "!":
        return opposite(holds(words[1:], state))
    if words[0].literal == "[[" and words[-1].literal == "]]":
        return _judged([joined(word, state) for word in words[1:-1]], state)
    match [text for word in words for text in fields(word, state)]:
        case ["[", *texts, "]"] | ["test", *texts]:
            return _judged(texts, state)
    return None


def both(sign: str, one: bool | None, other: bool | None) -> bool | None:
    """Two answers joined by `&&` or `||`."""
    decides = sign == "||"
    return decides if decides in (one, other) else None if None in (one, other) else not decides


def opposite(answer: bool | None) -> bool | None:
    """The negated answer; None stays None."""
    return None if answer is None else not answer


def _judged(texts: list[str], state: ShellState) -> bool | None:
    for sign in ("||", "&&"):
        if sign in texts:
            at = texts.index(sign)
            return both(sign, _judged(texts[:at], state), _judged(texts[at + 1 :], state))
    if any(state.reasons(text) for text in texts):
        return None
    match texts:
        case ["!", *others]:
            return opposite(_judged(others, state))
        case ["-z", text]:
            return not text
        case ["-n", text] | [text]:
            return bool(text)
        case [("-e" | "-f" | "-d") as kind, path]:
            found = Path(state.folder, path)
            return {"-e": found.exists, "-f": found.is_file, "-d": found.is_dir}[kind]()
        case [one, "=" | "==", other]:
            return fnmatch.fnmatchcase(one, other)
        case [one, "!=", other]:
            return not fnmatch.fnmatchcase(one, other)
        case [one, sign, other] if sign in _NUMBERS and one.isdigit() and other.isdigit():
            return bool(_NUMBERS[sign](int(one), int(other)))
    return None
