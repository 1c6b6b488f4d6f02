"""Reads a launch script, without running it, for the commands that would train.

Variables, arrays, heredocs, conditions that can be judged, and substitutions by a few harmless commands are followed.
A value that takes running a command stays unknown, and is an error only if the training command depends on it.
docs/reference/launch-scripts.md lists what is read.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrl_core.errors import SpecError
from dlrl_launch_script.blocks import KEYWORDS, Blocks, holds, on_unset
from dlrl_launch_script.entry_point import SHELLS, EntryPoint, Word, program_of
from dlrl_launch_script.expansion import fields, joined
from dlrl_launch_script.scanner import scan
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import ShellWord, SimpleCommand, Text

_log = logging.getLogger("dlrl")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?=)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARES = ("export", "declare", "typeset", "local", "readonly")
_TESTS = ("[", "[[", "test")
_DEEPEST = 8

_END = r"(?![\w.-])"
_CUT_OFF = re.compile(r"--|[+~]*\w+(\.\w+)+=")
"""How an argument begins that can't be a command."""


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """A command that the script would run, with plain words."""

    words: tuple[Word, ...]
    env: Mapping[str, str]
    """What the script exported to it."""
    doubt: str | None
    """Why it can't be told whether it is run, or how often."""
    problems: tuple[str, ...]
    """Words of it that could not be read."""
    where: str


@dataclass(frozen=True, kw_only=True)
class ScriptReading:
    """What was found in a script."""

    commands: list[ShellCommand] = field(default_factory=list)
    """Those that run a module of the framework."""
    skipped: list[str] = field(default_factory=list)
    """Where the module that trains stands and is not reached, with the reason."""
    programs: list[str] = field(default_factory=list)
    """Other Python programs and scripts that would be run, with their places."""


def read_script(
    text: str, *, name: str, path: str, arguments: Sequence[str], entry: EntryPoint, environ: Mapping[str, str]
) -> ScriptReading:
    """The commands that run a module. `name` is for error messages, `path` is what `$0` would be. Raises SpecError."""
    state = ShellState(script=path, arguments=list(arguments), environ=environ, folder=Path.cwd())
    reader = _Reader(name, state, entry, rows=text.splitlines())
    reader.read(text, 1)
    return reader.found


class _Reader:
    def __init__(self, name: str, state: ShellState, entry: EntryPoint, *, rows: Sequence[str], depth: int = 0) -> None:
        self.found = ScriptReading()
        self._name = name
        self._state = state
        self._entry = entry
        self._rows = rows
        self._depth = depth
        self._blocks = Blocks()
        self._has_ended = False
        self._succeeds: bool | None = True
        """Whether the command before does; None if it can't be told."""
        self._chain_unset: frozenset[str] = frozenset()
        """Variables without a value in the test before."""
        self._chain_doubt: str | None = None

    @property
    def _doubt(self) -> str | None:
        return self._blocks.doubt or self._chain_doubt

    def read(self, text: str, line: int) -> None:
        if self._depth > _DEEPEST:
            raise SpecError([f"'{self._name}' has scripts in scripts, {_DEEPEST} deep; {self._entry.advice}"])
        for command in scan(text, line):
            if not self._has_ended:
                self._command(command)

    def _command(self, command: SimpleCommand) -> None:
        if self._blocks.is_pattern(command, self._state):
            return
        words = list(command.words)
        while words and words[0].literal in KEYWORDS:
            keyword = words.pop(0).literal or ""
            if self._blocks.keyword(keyword, words, command, self._state):
                if keyword in ("for", "select") and words:
                    _forget(words[0].literal or "", self._state, command.line)
                return
        if not words:
            return
        if self._blocks.is_skipped:
            self._note_skipped(words, self._blocks.obstacle)
        elif self._blocks.is_condition:
            self._state.unset.clear()
            self._blocks.refine(command.after, holds(words, self._state), self._state.unset)
        elif self._is_reached(command):
            self._reached(words, command)
        else:
            self._note_skipped(words, f"the command before it decides{on_unset(self._chain_unset)}")

    def _note_skipped(self, words: list[ShellWord], reason: str) -> None:
        if any(self._entry.is_it(word.literal or "") for word in words):
            self.found.skipped.append(f"{self._name}:{words[0].line}, {reason}")

    def _reached(self, words: list[ShellWord], command: SimpleCommand) -> None:
        is_opposite = words[0].literal == "!"
        if words[is_opposite:] and words[is_opposite].literal in _TESTS:
            self._state.unset.clear()
            self._succeeds = holds(words, self._state)
            self._chain_unset = frozenset(self._state.unset)
        elif words[is_opposite:]:
            self._state.required.clear()
            self._plain(words[is_opposite:], command)
            self._succeeds = not is_opposite
            self._refuse_missing(command)

    def _refuse_missing(self, command: SimpleCommand) -> None:
        """bash ends a script at `${NAME:?message}` if the variable has no value."""
        if self._doubt is None and self._state.required:
            raise SpecError(
                [
                    f"the launch script needs '${name}' ({self._name}:{command.line}), which is not set"
                    f"{f': {message}' if message else ''}; set it, or {self._entry.advice}"
                    for name, message in self._state.required.items()
                ]
            )

    def _is_reached(self, command: SimpleCommand) -> bool:
        """Whether a command behind `&&` or `||` is run; if that can't be told, it is, with a doubt."""
        self._chain_doubt = None
        if command.after not in ("&&", "||"):
            return True
        if self._succeeds is None:
            unset = on_unset(self._chain_unset)
            self._chain_doubt = f"the command before it (line {command.line}) decides{unset}"
            return True
        return self._succeeds is (command.after == "&&")

    def _plain(self, words: list[ShellWord], command: SimpleCommand) -> None:
        count = next((at for at, word in enumerate(words) if not _assignment(word)), len(words))
        given, words = words[:count], words[count:]
        if not words:
            for word in given:
                _assign(word, self._state, is_certain=self._doubt is None)
            return
        prefix = {found[1]: _right_of(word, self._state) for word in given if (found := _assignment(word))}
        self._run(self._located(words), words, prefix, command)

    def _located(self, words: list[ShellWord]) -> list[Word]:
        """The words after expansion, each with its line and the variables that turned out to be unset there."""
        found: list[tuple[int, str]] = []
        unset: dict[int, str] = {}
        for word in words:
            self._state.unset.clear()
            found += [(word.line, text) for text in fields(word, self._state)]
            missing = "".join(f", '${name}' is not set" for name in sorted(self._state.unset))
            unset[word.line] = unset.get(word.line, "") + missing
        return [Word(text, f"{self._name}:{self._line_of(text, line)}{unset[line]}") for line, text in found]

    def _line_of(self, text: str, line: int) -> int:
        """Where an argument is written, if it came here from an array or a heredoc."""
        name, equals, _ = text.partition("=")
        if not (equals or text.startswith("--")):
            return line
        written = re.compile(rf"^[^#]*(?<![\w.-]){re.escape(name)}{equals or _END}")
        lines = [number for number, row in enumerate(self._rows, 1) if written.match(row)]
        return line if line in lines or not lines else lines[0]

    def _run(self, words: list[Word], raw: list[ShellWord], prefix: dict[str, str], command: SimpleCommand) -> None:
        texts = [word.text for word in words]
        if not texts or self._changes_state(texts, raw, command) or self._is_script(texts, raw, command):
            return
        at = self._entry.at(texts)
        if at is not None and self._entry.is_it(texts[at]):
            self._keep(words, at, prefix, command)
        elif program := program_of(texts):
            self.found.programs.append(f"{program} ({self._name}:{command.line})")
        elif _CUT_OFF.match(texts[0]):
            _log.warning("'%s' (%s) stands alone: a comment or a blank cut its command off", texts[0], words[0].where)

    def _changes_state(self, texts: list[str], raw: list[ShellWord], command: SimpleCommand) -> bool:
        match texts:
            case [name, *_] if name in _DECLARES:
                _declare(raw[1:], self._state, is_export=name == "export", is_certain=self._doubt is None)
            case ["unset", *names]:
                for name in names:
                    self._state.variables.pop(name, None)
            case ["read", *rest]:
                _read_into(rest, command, self._state, is_certain=self._doubt is None)
            case ["cd", folder] | ["cd", "--", folder]:
                self._state.folder = Path(os.path.normpath(self._state.folder / folder))
            case ["set", "--", *rest]:
                self._state.arguments = rest
            case ["shift"]:
                self._state.arguments = self._state.arguments[1:]
            case ["exit" | "return", *_]:
                self._has_ended = self._doubt is None
            case _:
                return False
        return True

    def _is_script(self, texts: list[str], raw: list[ShellWord], command: SimpleCommand) -> bool:
        match texts:
            case ["source" | ".", path, *_]:
                self._source(path)
            case ["eval", *rest]:
                self._within(" ".join(rest), command.line)
            case _ if (script := _given_script(texts)) is not None:
                self._within(script, next(word.line for word in raw if script in fields(word, self._state)))
            case _:
                return False
        return True

    def _keep(self, words: list[Word], at: int, prefix: dict[str, str], command: SimpleCommand) -> None:
        state = self._state
        exported = {name: state.get(name) for name in sorted(state.exported)}
        env = {name: " ".join(value) for name, value in exported.items() if value} | prefix
        problems = [
            f"'{state.readable(word.text)}' ({word.where}) needs {reason}, and dlrl reads a script without running it; "
            f"write the value out, or {self._entry.advice}"
            for number, word in enumerate(words)
            if number >= at or "env_vars" in word.text
            for reason in state.reasons(word.text)
        ]
        self.found.commands.append(
            ShellCommand(
                words=tuple(words),
                env={name: value for name, value in env.items() if not state.reasons(value)},
                doubt=self._doubt,
                problems=tuple(problems),
                where=f"{self._name}:{command.line}",
            )
        )

    # ---- scripts in scripts

    def _source(self, path: str) -> None:
        file = Path(self._state.folder, path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return  # its variables are not set, and are named where their values are missing
        rows = text.splitlines()
        self._follow(_Reader(path, self._state, self._entry, rows=rows, depth=self._depth + 1), text, 1)

    def _within(self, text: str, line: int) -> None:
        reader = _Reader(self._name, self._state, self._entry, rows=self._rows, depth=self._depth + 1)
        self._follow(reader, text, line)

    def _follow(self, reader: _Reader, text: str, line: int) -> None:
        reader._blocks, reader.found = self._blocks, self.found
        reader.read(text, line)


def _given_script(texts: list[str]) -> str | None:
    """What `bash -c` gets, wherever that stands in the command."""
    pairs = zip(texts, texts[1:], texts[2:], strict=False)
    return next((script for shell, flag, script in pairs if Path(shell).name in SHELLS and flag == "-c"), None)


# ---- variables


def _assignment(word: ShellWord) -> re.Match[str] | None:
    """Name, index and sign of `NAME=...`; None for any other word."""
    first = word.parts[0] if word.parts else None
    return _ASSIGNMENT.match(first.text) if isinstance(first, Text) and not first.is_quoted else None


def _assign(word: ShellWord, state: ShellState, *, is_certain: bool) -> None:
    """`NAME=value`, `NAME+=value`, `NAME=(elements)`."""
    found = _assignment(word)
    assert found is not None
    name, index, sign = found.groups()
    if not is_certain or index:
        _forget(name, state, word.line)
        return
    before = state.variables.get(name, "") if sign == "+=" else ""
    if word.elements is not None:
        kept = before if isinstance(before, list) else [before] if before else []
        state.variables[name] = [*kept, *(text for one in word.elements for text in fields(one, state))]
    else:
        state.variables[name] = (before if isinstance(before, str) else " ".join(before)) + _right_of(word, state)


def _right_of(word: ShellWord, state: ShellState) -> str:
    """What stands behind the '='."""
    text = joined(word, state)
    value = text[text.index("=") + 1 :]
    home = state.get("HOME")
    return home[0] + value[1:] if home and re.match(r"~(/|$)", value) else value


def _forget(name: str, state: ShellState, line: int) -> None:
    """From here on, the value is not known."""
    state.variables[name] = state.unreadable(f"${name} as of line {line}")


def _declare(words: Sequence[ShellWord], state: ShellState, *, is_export: bool, is_certain: bool) -> None:
    """`export NAME=value`, `export NAME`, `declare -a NAME=(elements)`."""
    for word in words:
        if found := _assignment(word):
            _assign(word, state, is_certain=is_certain)
        name = found[1] if found else word.literal or ""
        if is_export and _NAME.fullmatch(name):
            state.exported.add(name)


def _read_into(words: Sequence[str], command: SimpleCommand, state: ShellState, *, is_certain: bool) -> None:
    """`read -r -d '' NAME <<EOF` keeps the text; any other `read` waits for input."""
    names = [word for word in words if _NAME.fullmatch(word)]
    for name in names:
        if command.heredoc is not None and "-d" in words and len(names) == 1 and is_certain:
            state.variables[name] = joined(command.heredoc, state).strip()
        else:
            _forget(name, state, command.line)
