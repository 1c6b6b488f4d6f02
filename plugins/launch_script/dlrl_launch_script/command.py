"""From a command line, or the launch script that it runs, to the training command: its flags and its environment."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrl_core.errors import SpecError
from dlrl_core.spec.config_value import read_yaml
from dlrl_launch_script.entry_point import SHELLS, EntryPoint, Word
from dlrl_launch_script.script import ScriptReading, ShellCommand, read_script

_log = logging.getLogger("dlrl")

_NOT_OURS = re.compile(r"CUDA_VISIBLE_DEVICES|RAY_.*|PATH|PYTHONPATH|LD_LIBRARY_PATH|HOME|PWD|SHLVL|_")
"""Variables of the launching machine, or those that dlrl and Ray decide themselves."""


@dataclass(frozen=True, kw_only=True)
class TrainingCommand:
    """A command line without what starts the module."""

    flags: tuple[Word, ...]
    """The words after the module: flags, or overrides."""
    env: Mapping[str, str] = field(default_factory=dict)


def training_command(words: Sequence[str], entry: EntryPoint) -> TrainingCommand:
    """From a list of arguments, a whole command line, or the name of a launch script. Raises SpecError."""
    located = _located(words, entry)
    texts = [word.text for word in located]
    if (at := entry.at(texts)) is not None:
        return _of_command(located, at, {}, entry)
    if (script := _script_of(texts)) is not None:
        return _of_script(*script, entry)
    if not texts or entry.argument.match(texts[0]):
        return TrainingCommand(flags=tuple(located))
    raise SpecError(
        [
            f"'{texts[0]}' ({located[0].where}) is neither {_a(entry.noun)} nor a launch script (.sh), "
            f"and does not run {entry.module}"
        ]
    )


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _located(words: Sequence[str], entry: EntryPoint) -> list[Word]:
    """A text that was split by Python's shlex has its line continuations as line breaks; they are no words."""
    broken = (text.startswith("\n") and entry.argument.match(text[1:]) for text in words)
    cleaned = (text[1:] if is_broken else text for text, is_broken in zip(words, broken, strict=True))
    return [Word(text, f"word {at}") for at, text in enumerate(cleaned, 1) if text != "\n"]


def _script_of(texts: list[str]) -> tuple[str, str, list[str]] | None:
    """Name, text and arguments of a script that the words run."""
    words = list(texts)
    if words and (Path(words[0]).name in SHELLS or words[0] in ("source", ".")):
        words.pop(0)
        while words and words[0].startswith("-"):
            if "c" in words.pop(0) and words:
                return "the script after -c", words[0], words[1:]
    elif not words or not words[0].endswith(".sh"):
        return None
    if not words:
        return None
    return words[0], _text_of(words[0]), words[1:]


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError([f"can't read the launch script '{path}': {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SpecError([f"the launch script '{path}' is not a text in UTF-8"]) from error


def _of_script(path: str, text: str, arguments: list[str], entry: EntryPoint) -> TrainingCommand:
    name = Path(path).name
    found = read_script(text, name=name, path=path, arguments=arguments, entry=entry, environ=os.environ)
    command = _the_one(name, found, entry)
    if command.problems:
        raise SpecError(command.problems)
    at = entry.at([word.text for word in command.words])
    assert at is not None
    return _of_command(list(command.words), at, command.env, entry)


def _the_one(name: str, found: ScriptReading, entry: EntryPoint) -> ShellCommand:
    training = found.commands
    if not training:
        raise SpecError([f"the launch script '{name}' does not run {entry.module}; {_instead(found, entry)}"])
    places = "; ".join(f"{one.where}{f', {one.doubt}' if one.doubt else ''}" for one in training)
    if any(one.doubt for one in training):
        raise SpecError(
            [f"it can't be told without running '{name}' which {entry.module} it runs ({places}); {entry.advice}"]
        )
    if len(training) > 1:
        raise SpecError(
            [
                f"the launch script '{name}' runs {entry.module} {len(training)} times ({places}); "
                f"pass the {entry.noun}s of one"
            ]
        )
    return training[0]


def _instead(found: ScriptReading, entry: EntryPoint) -> str:
    """What a script does that does not train, and what the user can do about it."""
    if found.skipped:
        return f"it is not reached ({'; '.join(found.skipped)}): set the variables that decide, or {entry.advice}"
    if found.programs:
        return f"it runs {', '.join(found.programs)}, and dlrl runs {entry.module} alone"
    return entry.advice


def _of_command(words: list[Word], at: int, exported: Mapping[str, str], entry: EntryPoint) -> TrainingCommand:
    module = words[at]
    if not entry.is_it(module.text):
        raise SpecError([f"the command runs '{module.text}' ({module.where}); dlrl runs {entry.module}"])
    before = [word.text for word in words[:at]]
    is_ray_job = any(before[i : i + 2] == ["job", "submit"] for i in range(len(before)))
    leading = (text.partition("=") for text in before if re.match(r"[A-Za-z_]\w*=", text))
    env = {} if is_ray_job else {**exported, **{name: value for name, _, value in leading}}
    env |= _runtime_env(words[:at])
    return TrainingCommand(
        flags=tuple(words[at + 1 :]), env={name: value for name, value in env.items() if not _NOT_OURS.fullmatch(name)}
    )


def _runtime_env(words: list[Word]) -> dict[str, str]:
    """`env_vars` of `ray job submit --runtime-env-json '...'` or `--runtime-env FILE`."""
    env: dict[str, str] = {}
    for at, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        if flag in ("--runtime-env-json", "--runtime-env"):
            given = value if equals else words[at + 1].text if at + 1 < len(words) else ""
            env |= _env_vars(flag, given, word.where)
    return env


def _env_vars(flag: str, given: str, where: str) -> dict[str, str]:
    try:
        runtime_env = json.loads(given) if flag.endswith("json") else read_yaml(Path(given))
        env = {str(name): str(value) for name, value in (runtime_env.get("env_vars") or {}).items()}
    except (ValueError, AttributeError):
        raise SpecError([f"'{flag}' ({where}) is not an object with 'env_vars' in it"]) from None
    ignored = ", ".join(sorted(set(runtime_env) - {"env_vars"}))
    if ignored:
        _log.warning(
            "'%s' of %s (%s) is not used: start dlrl in the folder that the job needs, "
            "and install what it needs on the nodes",
            ignored,
            flag,
            where,
        )
    return env
