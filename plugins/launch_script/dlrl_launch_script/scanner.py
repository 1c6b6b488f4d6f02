"""From the text of a script to its commands and words. Nothing is expanded yet."""

from __future__ import annotations

import re

from dlrl_launch_script.syntax import Part, ShellWord, SimpleCommand, Text, scan_dollar

_BLANK = " \t\r"
_BREAKS = " \t\r\n;&|<>()"
_TEST_BREAKS = " \t\r\n;"
_OPERATOR = re.compile(r"\|\||&&|;;|[;|&()\n]")
_REDIRECTION = re.compile(r"&>>|&>|<<<|<<-|<<|>>|>&|<&|>\||<>|<|>")
_ARRAY_NAME = re.compile(r"[A-Za-z_]\w*\+?=")


def scan(text: str, line: int = 1) -> list[SimpleCommand]:
    """The commands of a script in their order."""
    return _Scanner(text, line).commands()


def scan_quoted(text: str, line: int) -> ShellWord:
    """The text of a heredoc, or of anything that is read like the inside of double quotes."""
    return ShellWord(tuple(_Scanner(text, line).quoted_parts(until=None)), line)


class _Scanner:
    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.at = 0
        self.line = line
        self._found: list[SimpleCommand] = []
        self._words: list[ShellWord] = []
        self._after = "\n"
        self._pending: list[tuple[str, bool, bool]] = []
        """Heredocs whose text begins on the next line: end word, whether it is read as it stands, indented."""

    def commands(self) -> list[SimpleCommand]:
        while self.at < len(self.text):
            if not (self._skip() or self._redirection() or self._operator()):
                self._words.append(self.word())
        self._end("\n")
        return self._found

    # ---- between words

    def _skip(self) -> bool:
        if self.text[self.at] in _BLANK:
            self.at += 1
        elif self.text.startswith("\\\n", self.at):
            self._advance(2)
        elif self.text[self.at] == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        else:
            return False
        return True

    def _operator(self) -> bool:
        found = _OPERATOR.match(self.text, self.at)
        if found is None or (self._is_in_test and found[0] not in "\n;"):
            return False
        if self.text.startswith("((", self.at):  # a condition or a count: nothing of it is a word
            self.at = max(self.text.find("))", self.at), self.at) + 2
            return True
        if found[0] == "(" and len(self._words) == 1 and self.text[self.at + 1 :].lstrip(_BLANK).startswith(")"):
            self._words.insert(0, ShellWord((Text("function", False),), self.line))
        self._advance(len(found[0]))
        self._end(found[0])
        if found[0] == "\n" and self._pending:
            self._read_heredocs()
        return True

    @property
    def _is_in_test(self) -> bool:
        words = [word.literal for word in self._words]
        return "[[" in words and "]]" not in words

    def _end(self, operator: str) -> None:
        if self._words:
            self._found.append(SimpleCommand(tuple(self._words), self._words[0].line, self._after))
            self._after = operator
        elif operator != "\n":
            self._after = operator
        self._words = []

    def _redirection(self) -> bool:
        found = _REDIRECTION.match(self.text, self.at)
        if found is None or self._is_in_test:
            return False
        number = self._words[-1].literal if self._words else None
        if number and number.isdigit() and self.text[self.at - 1].isdigit():
            self._words.pop()  # the 2 of 2>&1
        self.at += len(found[0])
        while self.text[self.at : self.at + 1] in (*_BLANK,):
            self.at += 1
        if self.at >= len(self.text) or self.text[self.at] in _BREAKS:
            return True
        target = self.word()
        if found[0] in ("<<", "<<-"):
            ends = "".join(part.text for part in target.parts if isinstance(part, Text))
            is_raw = any(part.is_quoted for part in target.parts)
            self._pending.append((ends, is_raw, found[0] == "<<-"))
        return True

    def _read_heredocs(self) -> None:
        """The text of a heredoc belongs to the command on the line before it."""
        for ends, is_raw, is_indented in self._pending:
            line, lines = self.line, []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                row = self.text[self.at : end if end >= 0 else len(self.text)]
                self._advance(len(row) + 1)
                row = row.lstrip("\t") if is_indented else row
                if row == ends:
                    break
                lines.append(row)
            text = "\n".join(lines)
            word = ShellWord((Text(text, True),), line) if is_raw else scan_quoted(text, line)
            self._give_heredoc(word)
        self._pending = []

    def _give_heredoc(self, word: ShellWord) -> None:
        if self._found:
            last = self._found[-1]
            self._found[-1] = SimpleCommand(last.words, last.line, last.after, word)

    # ---- within words

    def word(self) -> ShellWord:
        line, parts = self.line, list[Part]()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(" and not self._is_in_test and _is_array(parts):
                return ShellWord(tuple(_joined(parts)), line, self._elements())
            if char in (_TEST_BREAKS if self._is_in_test else _BREAKS):
                break
            parts += self._piece(char)
        return ShellWord(tuple(_joined(parts)), line)

    def _piece(self, char: str) -> list[Part]:
        if self.text.startswith("\\\n", self.at):
            self._advance(2)
            return []
        if char == "\\":
            self._advance(2)
            return [Text(self.text[self.at - 1 : self.at], True)]
        if char == "'":
            return [Text(self._until("'"), True)]
        if char == '"':
            self.at += 1
            return self.quoted_parts(until='"') or [Text("", True)]
        if char in "$`":
            return [self._dollar(is_quoted=False)]
        self.at += 1
        return [Text(char, False)]

    def quoted_parts(self, until: str | None) -> list[Part]:
        """Up to the closing quote, which is consumed; or to the end of the text."""
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == until:
                self.at += 1
                break
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", "\\", "\n", until):
                escaped = self.text[self.at + 1]
                self._advance(2)
                parts.append(Text("" if escaped == "\n" else escaped, True))
            elif char in "$`":
                parts.append(self._dollar(is_quoted=True))
            else:
                self._advance(1)
                parts.append(Text(char, True))
        return _joined(parts)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        end = len(self.text) if end < 0 else end
        inside = self.text[self.at + 1 : end]
        self._advance(len(inside) + 2)
        return inside

    def _dollar(self, *, is_quoted: bool) -> Part:
        part, end = scan_dollar(self.text, self.at, self.line, is_quoted=is_quoted, read=scan_quoted)
        self._advance(end - self.at)
        return part

    def _elements(self) -> tuple[ShellWord, ...]:
        self.at += 1
        elements: list[ShellWord] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "\n":
                self._advance(1)
            elif not self._skip():
                before = self.at
                elements.append(self.word())
                self.at += self.at == before  # a character that is no word, such as a stray ';'
        self.at += 1
        return tuple(elements)

    def _advance(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count


def _is_array(parts: list[Part]) -> bool:
    text = "".join(part.text for part in parts if isinstance(part, Text) and not part.is_quoted)
    return len(parts) == len(text) and _ARRAY_NAME.fullmatch(text) is not None


def _joined(parts: list[Part]) -> list[Part]:
    """Neighbouring characters as one text."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text) and part.is_quoted == last.is_quoted:
            joined[-1] = Text(last.text + part.text, part.is_quoted)
        else:
            joined.append(part)
    return joined
