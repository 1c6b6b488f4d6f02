"""The training config as the user gave it, in any of its forms, and single values over it ('lr=0.1')."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_core.spec.config_value import read_yaml

_log = logging.getLogger("dlrl")
_ABSENT = object()


def config_source(config: Any) -> ConfigSource:
    """What was given to `.config(...)`, sorted by its form. Raises SpecError if it has none that is known."""
    from omegaconf import OmegaConf

    if config is None:
        return ConfigSource(kind=ConfigKind.MAPPING, value={})
    if isinstance(config, Mapping) or OmegaConf.is_config(config):
        return ConfigSource(kind=ConfigKind.MAPPING, value=config)
    if isinstance(config, Path) or (isinstance(config, str) and config.endswith((".yaml", ".yml"))):
        return ConfigSource(kind=ConfigKind.YAML, value=Path(config))
    if isinstance(config, str):
        import shlex

        return ConfigSource(kind=ConfigKind.WORDS, value=tuple(shlex.split(config)))
    if isinstance(config, list | tuple) and all(isinstance(word, str) for word in config):
        return ConfigSource(kind=ConfigKind.WORDS, value=tuple(config))
    raise SpecError(
        [f"config is a {type(config).__name__}; it must be a dict, an OmegaConf, a YAML file or a framework's words"]
    )


def overridden(source: ConfigSource, overrides: Sequence[str], *, is_whole: bool) -> ConfigSource:
    """The config with the overrides in it; the user's own object stays as it is.

    Values are read as YAML. `is_whole` says that no framework adds defaults later: a key that the config does not have
    is then likely a typo, and is logged.
    """
    if not overrides:
        return source
    if isinstance(source.value, tuple):
        raise SpecError(
            [
                f"override of '{overrides[0].partition('=')[0]}' can't be laid over a framework's own words; "
                "write it among those words"
            ]
        )
    config = _opened(read_yaml(source.value) if isinstance(source.value, Path) else source.value)
    problems = [problem for word in overrides if (problem := _apply(config, word, is_whole=is_whole))]
    if problems:
        raise SpecError(problems)
    return ConfigSource(kind=ConfigKind.MAPPING, value=config)


def _opened(config: Mapping[Any, Any]) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        opened: Any = copy.deepcopy(config) if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
    except OmegaConfBaseException as error:
        raise SpecError([f"config can't be held by OmegaConf: {str(error).strip().splitlines()[0]}"]) from error
    OmegaConf.set_struct(opened, False)
    OmegaConf.set_readonly(opened, False)
    return opened


def _apply(config: Any, word: str, *, is_whole: bool) -> str | None:
    """Change the config by one override; returns the problem if it can't be applied."""
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    key, equals, _ = word.partition("=")
    if not equals or not key:
        return f"override '{word}' is not written as key=value"
    is_new = is_whole and not _has(config, key)
    try:
        config.merge_with_dotlist([word])
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError) as error:
        return f"override of '{key}' can't be applied: {str(error).strip().splitlines()[0]}"
    if is_new:
        _log.warning("override adds '%s', which the config did not have", key)
    return None


def _has(config: Any, key: str) -> bool:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.select(config, key, default=_ABSENT) is not _ABSENT
    except OmegaConfBaseException:
        return True  # it is there, and can't be resolved yet
