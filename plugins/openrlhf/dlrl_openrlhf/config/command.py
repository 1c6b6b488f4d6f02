"""The training command: which flags it has, and which environment it would have had."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrl_core.errors import SpecError
from dlrl_core.spec.job_spec import read_yaml
from dlrl_openrlhf.config.said import Word
from dlrl_openrlhf.config.shell import SHELLS, ShellCommand, read_script

_log = logging.getLogger("dlrl")

MODULE = "openrlhf.cli.train_ppo_ray"
_MODULE = re.compile(r"openrlhf\.cli\.\w+")
_FILE = re.compile(r"(?:.*/)?(?:openrlhf/cli/|examples/)?(train_\w+)\.py")
_PYTHONS = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|deepspeed)")
_NOT_OURS = re.compile(r"CUDA_VISIBLE_DEVICES|RAY_.*|PATH|PYTHONPATH|LD_LIBRARY_PATH|HOME|PWD|SHLVL|_")
"""Variables of the launching machine, or those that dlrl and Ray decide themselves."""


@dataclass(frozen=True, kw_only=True)
class TrainingCommand:
    """What is left of a command line when all that starts it is taken off."""

    flags: tuple[Word, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def training_command(words: Sequence[str]) -> TrainingCommand:
    """From a list of flags, a whole command line, or the name of a launch script. Raises SpecError."""
    located = _located(words)
    texts = [word.text for word in located]
    if (at := module_at(texts)) is not None:
        return _of_command(located, at, {})
    if (script := _script_of(texts)) is not None:
        return _of_script(*script)
    if not texts or texts[0].startswith("-"):
        return TrainingCommand(flags=tuple(located))
    raise SpecError(
        [f"'{texts[0]}' ({located[0].where}) is neither a flag nor a launch script (.sh), and does not run {MODULE}"]
    )


def module_at(texts: Sequence[str]) -> int | None:
    """Where the module of OpenRLHF stands that the command runs; None if it runs none."""
    for at, text in enumerate(texts):
        if at and texts[at - 1] in ("-m", "--module") and _MODULE.fullmatch(text):
            return at
        if _FILE.fullmatch(text) and any(_PYTHONS.fullmatch(one) for one in texts[:at]):
            return at
    return None


def _located(words: Sequence[str]) -> list[Word]:
    """A text that was split by Python's shlex has its line continuations as line breaks; they are no words."""
    cleaned = (text.removeprefix("\n") if text.startswith("\n-") else text for text in words)
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


def _of_script(path: str, text: str, arguments: list[str]) -> TrainingCommand:
    name = Path(path).name
    found = read_script(text, name=name, path=path, arguments=arguments, find=module_at, environ=os.environ)
    command = _the_one(name, found)
    if command.problems:
        raise SpecError(command.problems)
    at = module_at([word.text for word in command.words])
    assert at is not None
    return _of_command(list(command.words), at, command.env)


def _the_one(name: str, found: list[ShellCommand]) -> ShellCommand:
    training = [one for one in found if any(MODULE in word.text or _is_file(word.text) for word in one.words)]
    if not training:
        others = {text for one in found for word in one.words if _MODULE.fullmatch(text := word.text)}
        also = f"; it runs {', '.join(sorted(others))}" if others else ""
        raise SpecError([f"the launch script '{name}' does not run {MODULE}{also}; pass the flags themselves"])
    places = "; ".join(f"{one.where}{f', {one.doubt}' if one.doubt else ''}" for one in training)
    if any(one.doubt for one in training):
        raise SpecError(
            [f"it can't be told without running '{name}' which {MODULE} it runs ({places}); pass the flags themselves"]
        )
    if len(training) > 1:
        raise SpecError(
            [f"the launch script '{name}' runs {MODULE} {len(training)} times ({places}); pass the flags of one"]
        )
    return training[0]


def _is_file(text: str) -> bool:
    found = _FILE.fullmatch(text)
    return found is not None and MODULE.endswith(f".{found[1]}")


def _of_command(words: list[Word], at: int, exported: Mapping[str, str]) -> TrainingCommand:
    module = words[at]
    if module.text != MODULE and not _is_file(module.text):
        raise SpecError([f"the command runs '{module.text}' ({module.where}); dlrl runs {MODULE}"])
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
