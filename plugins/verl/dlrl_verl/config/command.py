"""verl's training command, and what its words say to hydra."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlrl_core.errors import SpecError
from dlrl_launch_script import EntryPoint, TrainingCommand, Word, training_command

ENTRY = EntryPoint(
    module="verl.trainer.main_ppo",
    family=re.compile(r"(?:verl|recipe)\.[\w.]+"),
    file=re.compile(r"(?:.*/)?verl/trainer/(main_\w+)\.py"),
    argument=re.compile(r"-|\+|~|[\w./@-]+(?:\[\d+\])*="),
    noun="override",
)
_VALUES = {
    "--config-name": "name",
    "-cn": "name",
    "--config-path": "path",
    "-cp": "path",
    "--config-dir": "folder",
    "-cd": "folder",
}
_PASSED = ("--run", "-r")
_SWEEPS = ("--multirun", "-m")


@dataclass(frozen=True, kw_only=True)
class HydraWords:
    """What hydra gets: which config, where it is, and what is laid over it."""

    overrides: tuple[Word, ...]
    name: str = "ppo_trainer"
    path: str | None = None
    """Where the config is, if not with verl; a relative one starts at the folder of verl's command."""
    folder: str | None = None
    """Another folder to look in."""


def command_of(words: Sequence[str]) -> TrainingCommand:
    """From overrides, a whole command line, or the name of a launch script. Raises SpecError."""
    return training_command(words, ENTRY)


def hydra_words(words: Sequence[Word]) -> HydraWords:
    """Flags and overrides apart. Raises SpecError with each flag that does not train."""
    rest, overrides, problems = list(words), list[Word](), list[str]()
    named: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.text.partition("=")
        if not word.text.startswith("-"):
            overrides.append(word)
        elif flag in _VALUES and (equals or rest):
            named[_VALUES[flag]] = value if equals else rest.pop(0).text
        elif flag not in _PASSED:
            problems.append(_problem(word, flag))
    if problems:
        raise SpecError(problems)
    return HydraWords(overrides=tuple(overrides), **named)


def _problem(word: Word, flag: str) -> str:
    if flag in _VALUES:
        return f"flag '{flag}' ({word.where}) has no value"
    if flag in _SWEEPS:
        return f"flag '{flag}' ({word.where}) asks hydra for several jobs; dlrl runs one, with one value for each key"
    return f"flag '{flag}' ({word.where}) does not train, as far as dlrl knows hydra's flags; leave it out"
