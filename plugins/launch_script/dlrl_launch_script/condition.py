"""Whether the condition of an `if` holds, where that can be told from the script and the environment."""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Sequence
from pathlib import Path

from dlrl_launch_script.expansion import fields, joined
from dlrl_launch_script.state import ShellState
from dlrl_launch_script.syntax import ShellWord

_NUMBERS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def holds(words: Sequence[ShellWord], state: ShellState) -> bool | None:
    """None if it can't be told."""
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
    """What two answers are together, with `&&` or `||` between them."""
    decides = sign == "||"
    return decides if decides in (one, other) else None if None in (one, other) else not decides


def opposite(answer: bool | None) -> bool | None:
    """The other answer, if there is one."""
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
