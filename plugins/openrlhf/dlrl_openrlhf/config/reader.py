"""From what the user gave to the config of the job: checked, and nothing in it that the user did not say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigSource
from dlrl_core.spec.config_value import read_yaml
from dlrl_openrlhf.config.command import training_command
from dlrl_openrlhf.config.contradictions import contradictions
from dlrl_openrlhf.config.flag_mapping import flags_in
from dlrl_openrlhf.config.flag_table import known_flags
from dlrl_openrlhf.config.flag_words import Vocabulary, flags_of
from dlrl_openrlhf.config.nesting import nested
from dlrl_openrlhf.config.old_flags import translated
from dlrl_openrlhf.config.own_parser import is_installed, own_namespace
from dlrl_openrlhf.config.said import RUNTIME_ENV, SaidFlag, argv_of


def read(source: ConfigSource) -> dict[str, Any]:
    """The config as nested values, by the names of the supported version. Raises SpecError with every problem.

    Where OpenRLHF is installed, it is checked by OpenRLHF's own parser too.
    """
    table = known_flags()
    problems: list[str] = []
    flags, env = _flags(source, Vocabulary(table), problems)
    said = translated(flags, problems)
    if not problems:
        problems += contradictions(table, said)
    if problems:
        raise SpecError(problems)
    config = nested({name: one.value for name, one in said.items()})
    if is_installed():
        own_namespace(argv_of(config))
    return {**config, RUNTIME_ENV: {"env_vars": env}} if env else config


def _flags(source: ConfigSource, words: Vocabulary, problems: list[str]) -> tuple[list[SaidFlag], dict[str, str]]:
    match source.value:
        case tuple():
            command = training_command(source.value)
        case Path() if source.value.suffix not in (".yaml", ".yml"):
            command = training_command((str(source.value),))
        case Path():
            return _mapped(read_yaml(source.value), source.value.name, words, problems)
        case _:
            return _mapped(source.value, "config", words, problems)
    return flags_of(command.flags, words, problems), dict(command.env)


def _mapped(
    config: Mapping[Any, Any], place: str, words: Vocabulary, problems: list[str]
) -> tuple[list[SaidFlag], dict[str, str]]:
    plain = _resolved(config, place)
    runtime_env = plain.pop(RUNTIME_ENV, None) or {}
    env = runtime_env.get("env_vars") or {} if isinstance(runtime_env, Mapping) else None
    if not isinstance(env, Mapping):
        problems.append(f"'{RUNTIME_ENV}' of {place} must be a mapping with 'env_vars' in it")
        env = {}
    return flags_in(plain, words, place, problems), {str(name): str(value) for name, value in env.items()}


def _resolved(config: Mapping[Any, Any], place: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        opened = config if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
        plain: Any = OmegaConf.to_container(opened, resolve=True)
    except OmegaConfBaseException as error:
        raise SpecError([f"{place} can't be resolved: {str(error).splitlines()[0]}"]) from error
    return {str(key): value for key, value in plain.items()}
