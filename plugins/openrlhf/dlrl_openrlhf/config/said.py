"""What the user said, with the place where it stands; and the config made of it as words again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dlrl_launch_script import Word
from dlrl_openrlhf.config.flag_table import Flag, FlagTable, known_flags
from dlrl_openrlhf.config.nesting import leaves

__all__ = ["RUNTIME_ENV", "Said", "SaidFlag", "Word", "argv_of", "flat"]

RUNTIME_ENV = "runtime_env"
"""The part of a config that is not OpenRLHF's: `env_vars` of the job, as in `ray job submit --runtime-env-json`."""


@dataclass(frozen=True)
class SaidFlag:
    """A flag with its value, as typed as the flag wants it."""

    flag: Flag
    value: Any
    where: str


@dataclass(frozen=True)
class Said:
    """A value for one name of OpenRLHF's namespace."""

    value: Any
    where: str


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Each value of the config by its dotted name."""
    return dict(leaves(_plain(config)))


def argv_of(config: Mapping[str, Any]) -> list[str]:
    """The config as words that the parser of the supported version takes."""
    table = known_flags()
    return [word for name, value in flat(config).items() for word in _words(table, name, value)]


def _plain(config: Mapping[str, Any]) -> Mapping[str, Any]:
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    return {key: value for key, value in plain.items() if key != RUNTIME_ENV}


def _words(table: FlagTable, name: str, value: Any) -> list[str]:
    flag = table.of(name, value)
    if flag is None or value is None:
        return []  # false for a flag that can only be set: its default
    if flag.type == "bool":
        return [f"--{flag.name}"]
    if isinstance(value, list | tuple):
        return [f"--{flag.name}", *map(_text, value)]
    text = _text(value)
    return [f"--{flag.name}={text}"] if text.startswith("-") else [f"--{flag.name}", text]


def _text(value: Any) -> str:
    """Never with an exponent, because argparse takes '-1e-05' for a flag."""
    return format(Decimal(repr(value)), "f") if isinstance(value, float) and value < 0 else str(value)
