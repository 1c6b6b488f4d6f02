"""Words such as `--actor.num_nodes 2` as flags with values, by the rules of argparse.

Written out instead of left to argparse, so that every problem is found at once and says where the word stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlrl_core.hints import did_you_mean
from dlrl_launch_script import Word
from dlrl_openrlhf.config.flag_table import Flag, FlagTable
from dlrl_openrlhf.config.old_flags import old_flags
from dlrl_openrlhf.config.said import SaidFlag

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Vocabulary:
    """The flags of the supported version and, under other names, those of older ones."""

    def __init__(self, table: FlagTable) -> None:
        self._new = table.flags
        self._old = old_flags(table)

    def get(self, name: str) -> Flag | None:
        return self._new.get(name) or self._old.get(name)

    def starting_with(self, start: str) -> list[Flag]:
        """Those that an abbreviation may mean; an older one only if no newer one does."""
        for flags in (self._new, self._old):
            if found := [flag for name, flag in flags.items() if name.startswith(start)]:
                return found
        return []

    def unknown(self, name: str, where: str) -> str:
        """A sentence for a flag that no version has."""
        hint = did_you_mean(name, (*self._new, *self._old))
        end = hint.replace("'", "'--", 1) if hint.endswith("?") else "; no version of OpenRLHF that dlrl knows has it"
        return f"unknown flag '--{name}' ({where}){end}"


def flags_of(words: Sequence[Word], vocabulary: Vocabulary, problems: list[str]) -> list[SaidFlag]:
    """The flags among the words, in order; whatever is wrong goes to the problems."""
    found: list[SaidFlag] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        texts: list[str] = []
        while rest and not _is_flag(rest[0].text):
            texts.append(rest.pop(0).text)
        flag = _named(word, vocabulary, problems)
        if flag is None:
            continue
        _, has_value, value = word.text.partition("=")
        said = _said(flag, word, [value] if has_value else texts, problems)
        if has_value and texts:
            problems.append(f"'{texts[0]}' (after '--{flag.name}', {word.where}) is not a flag, and no flag takes it")
        found += [said] if said else []
    return found


def _is_flag(text: str) -> bool:
    """As argparse sees it: a negative number is a value, and so is what has a space in it."""
    if not text.startswith("-") or text == "-" or _NEGATIVE_NUMBER.fullmatch(text):
        return False
    return " " not in text.partition("=")[0]


def _named(word: Word, vocabulary: Vocabulary, problems: list[str]) -> Flag | None:
    if not _is_flag(word.text) or not word.text.startswith("--") or word.text == "--":
        problems.append(f"'{word.text}' ({word.where}) is not a flag, and no flag takes it")
        return None
    name = word.text.partition("=")[0].removeprefix("--")
    if flag := vocabulary.get(name):
        return flag
    meant = vocabulary.starting_with(name)
    if len(meant) == 1:
        return meant[0]
    if meant:
        shown = ", ".join(f"--{flag.name}" for flag in meant[:6])
        problems.append(f"flag '--{name}' ({word.where}) is short for more than one: {shown}")
    else:
        problems.append(vocabulary.unknown(name, word.where))
    return None


def _said(flag: Flag, word: Word, texts: list[str], problems: list[str]) -> SaidFlag | None:
    if not flag.fewest <= len(texts) <= flag.most:
        problems.append(f"flag '--{flag.name}' ({word.where}) takes {flag.arity}, and has {len(texts) or 'none'}")
        return None
    try:
        return SaidFlag(flag, _value(flag, texts), word.where)
    except ValueError as error:
        problems.append(f"flag '--{flag.name}' ({word.where}) {error}")
        return None


def _value(flag: Flag, texts: list[str]) -> Any:
    if flag.type == "bool":
        return flag.const
    values = [flag.typed(text) for text in texts]
    return values if flag.is_list else values[0]
