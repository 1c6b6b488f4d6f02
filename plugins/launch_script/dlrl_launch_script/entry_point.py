"""The words of a command line, and the module of a framework that trains."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PYTHONS = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed)")
SHELLS = ("bash", "sh", "zsh", "dash")


@dataclass(frozen=True)
class Word:
    """One word of a command line. `where` is for error messages, such as 'train.sh:14' or 'word 3'."""

    text: str
    where: str


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """The module that trains, and how to know it among other words."""

    module: str
    family: re.Pattern[str]
    """Modules of the same framework, so that one that does something else is named in the error."""
    file: re.Pattern[str]
    """The module as a source file; the first group is the last part of its name."""
    argument: re.Pattern[str]
    """How an argument begins."""
    noun: str
    """What its arguments are called: 'flag', 'override'."""

    def at(self, texts: Sequence[str]) -> int | None:
        """Where a module of the framework stands that the command runs; None if it runs none."""
        for at, text in enumerate(texts):
            if at and texts[at - 1] in ("-m", "--module") and self.family.fullmatch(text):
                return at
            if self.file.fullmatch(text) and any(_PYTHONS.fullmatch(one) for one in texts[:at]):
                return at
        return None

    def is_it(self, text: str) -> bool:
        """Whether the word is the module that trains."""
        found = self.file.fullmatch(text)
        return text == self.module or (found is not None and self.module.endswith(f".{found[1]}"))

    @property
    def advice(self) -> str:
        return f"pass the {self.noun}s themselves"


def program_of(texts: Sequence[str]) -> str | None:
    """The module, Python file or script that a command runs, whichever it is; None for any other command."""
    if len(texts) > 1 and Path(texts[0]).name in SHELLS and texts[1].endswith(".sh"):
        return texts[1]
    start = next((at for at, text in enumerate(texts) if _PYTHONS.fullmatch(text)), None)
    rest = texts[start + 1 :] if start is not None else ()
    module = next((text for flag, text in itertools.pairwise(rest) if flag in ("-m", "--module")), None)
    return module or next((text for text in rest if text.endswith(".py")), None)
