"""Overrides laid over verl's config. All that hydra would refuse is told at once, with the place of each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.hints import did_you_mean
from dlrl_launch_script import Word
from dlrl_verl.config.composition import ConfigFiles, composed, loader_of
from dlrl_verl.config.key_tree import KeyTree


@dataclass(frozen=True)
class _Override:
    word: Word
    parsed: Any
    """hydra's own `Override`."""

    @property
    def key(self) -> str:
        return str(self.parsed.key_or_group)

    @property
    def shown(self) -> str:
        return f"'{self.key}' ({self.word.where})"


def laid_over(files: ConfigFiles, words: Sequence[Word]) -> Any:
    """The composed config. Raises SpecError."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = list(_parsed(words))
    try:
        return composed(files, [one.word.text for one in overrides])
    except (HydraException, OmegaConfBaseException) as error:
        raise SpecError(_causes(files, overrides) or [_refusal(error, overrides)]) from error


def _parsed(words: Sequence[Word]) -> Iterator[_Override]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    problems: list[str] = []
    for word in words:
        try:
            override = _Override(word, parser.parse_override(word.text))
        except HydraException as error:
            problems.append(f"'{word.text}' ({word.where}) is not an override of hydra: {_first_line(error)}")
            continue
        if override.parsed.is_sweep_override():
            problems.append(f"{override.shown} has several values to choose from; dlrl runs one job, with one of them")
        else:
            yield override
    if problems:
        raise SpecError(problems)


def _causes(files: ConfigFiles, overrides: Sequence[_Override]) -> list[str]:
    """What is wrong with which override, as far as it can be told without hydra's help."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    repository = loader_of(files).repository
    chosen = [one for one in overrides if one.key.startswith("hydra.") or repository.group_exists(one.key)]
    try:
        base = composed(files, [one.word.text for one in chosen])
    except (HydraException, OmegaConfBaseException):
        return []
    tree = KeyTree(OmegaConf.to_container(base, resolve=False))
    return [problem for one in overrides if one not in chosen if (problem := _applied(one, tree))]


def _applied(override: _Override, tree: KeyTree) -> str | None:
    """Change the tree as hydra would; returns why it would not."""
    kind, value = override.parsed.type.name, override.parsed.value()
    is_there = override.key in tree
    if kind == "DEL":
        if not is_there:
            return _unknown(override, tree, "there is no such key to take away")
        tree.remove(override.key)
        return None
    if kind == "CHANGE" and not is_there:
        return _unknown(override, tree, f"to add a key that verl does not know, write '+{override.word.text}'")
    if kind == "ADD" and tree.get(override.key) is not None and not isinstance(value, dict | list):
        return f"key {override.shown} is there already; to change it, leave the '+' out"
    tree.set(override.key, value)
    return None


def _unknown(override: _Override, tree: KeyTree, advice: str) -> str:
    hint = did_you_mean(override.key, (key for key in tree if not override.key.startswith(f"{key}.")))
    return f"unknown key {override.shown}{hint if hint.endswith('?') else f'; {advice}'}"


def _refusal(error: Exception, overrides: Sequence[_Override]) -> str:
    """hydra's own words, with the place of the override that they are about."""
    reason = " ".join(line.strip() for line in str(error).split("Config search path:")[0].splitlines() if line.strip())
    about = next((one for one in reversed(overrides) if f"{one.key}/" in reason or f"'{one.key}'" in reason), None)
    return f"hydra refuses {about.shown if about else 'the config'}: {reason}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
