"""Single values laid over a config: 'lr=0.1', 'model.path=/data/m'. Values are read as YAML."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_core.spec.job_spec import read_yaml

_log = logging.getLogger("dlrl")
_ABSENT = object()


def overridden(source: ConfigSource, overrides: Sequence[str], *, is_whole: bool) -> ConfigSource:
    """The config with the overrides in it; the user's own object stays as it is.

    `is_whole` says that nobody adds defaults later: a key that is not there is then likely a typo, and is logged.
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
    """Change the config by one override; returns what is wrong with it, if anything."""
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
