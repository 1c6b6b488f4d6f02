"""The flags of OpenRLHF's PPO command: name, type, arity, default. Read from the installed one, or as shipped.

`flag_table.json` is what `python -m dlrl_openrlhf.config.flag_table` writes where OpenRLHF is installed, so that a
plan can be made where it is not.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrl_openrlhf.config.own_parser import is_installed, own_parser

SHIPPED = Path(__file__).with_name("flag_table.json")
_TYPES = {"int": int, "float": float, "str": str}
_DEPENDS_ON_THE_CLOCK = ("logger.wandb.run_name",)


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag, such as `--actor.num_nodes`, without the dashes."""

    name: str
    dest: str
    """Where its value goes: the name, but for flags that turn another one off."""
    type: str
    """'int', 'float' or 'str'; 'bool' if it takes no value."""
    nargs: int | str | None = None
    default: Any = None
    """None also where OpenRLHF makes it up from the clock."""
    choices: tuple[str, ...] | None = None
    const: bool | None = None
    """What the flag means if it takes no value."""

    @property
    def fewest(self) -> int:
        """How many values must follow it."""
        if self.type == "bool" or self.nargs == "*":
            return 0
        return self.nargs if isinstance(self.nargs, int) else 1

    @property
    def most(self) -> float:
        return math.inf if isinstance(self.nargs, str) else self.fewest

    @property
    def arity(self) -> str:
        """How many values it takes, in words."""
        if self.most == 0:
            return "no value"
        if self.most != self.fewest:
            return "values" if self.fewest == 0 else "one value or more"
        return "one value" if self.fewest == 1 else f"{self.fewest} values"

    @property
    def is_list(self) -> bool:
        return self.nargs is not None

    def typed(self, text: str) -> Any:
        """One value; raises ValueError with what is wrong with it."""
        try:
            value = _TYPES[self.type](text)
        except ValueError:
            kind = "a whole number" if self.type == "int" else "a number"
            raise ValueError(f"is '{text}'; it must be {kind}") from None
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"is '{text}'; it must be one of {', '.join(self.choices)}")
        return value


class FlagTable:
    """All flags by name."""

    def __init__(self, flags: list[Flag]) -> None:
        self.flags = {flag.name: flag for flag in flags}
        self._setting = {flag.dest: flag for flag in reversed(flags) if flag.const is not False}
        self._clearing = {flag.dest: flag for flag in flags if flag.const is False}

    def __contains__(self, name: str) -> bool:
        return name in self.flags

    def __iter__(self) -> Iterator[str]:
        return iter(self.flags)

    def __getitem__(self, name: str) -> Flag:
        return self.flags[name]

    def of(self, dest: str, value: Any = True) -> Flag | None:
        """The flag that gives `dest` this value; None if there is none."""
        return self._clearing.get(dest) if value is False else self._setting.get(dest)

    def default(self, dest: str) -> Any:
        return self._setting[dest].default


def known_flags() -> FlagTable:
    """The flags of the installed OpenRLHF, or the shipped ones where there is none."""
    return FlagTable(_flags(rows_of(own_parser())) if is_installed() else _shipped())


def rows_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """The parser's flags as they are shipped: JSON values only, what says nothing left out."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return [_row(action) for action in actions]


def _row(action: argparse.Action) -> dict[str, Any]:
    takes_none = action.nargs == 0
    name = action.option_strings[0].lstrip("-")
    default = None if name in _DEPENDS_ON_THE_CLOCK else action.default
    row = {
        "name": name,
        "dest": action.dest if action.dest != name else None,
        "type": "bool" if takes_none else getattr(action.type, "__name__", "str"),
        "nargs": None if takes_none else action.nargs,
        "default": _jsonable(default),
        "choices": list(action.choices) if action.choices else None,
        "const": action.const if takes_none else None,
    }
    return {key: value for key, value in row.items() if value is not None}


def _jsonable(default: Any) -> Any:
    if isinstance(default, list | tuple):
        return [_jsonable(one) for one in default]
    return str(default) if isinstance(default, float) and math.isinf(default) else default


def _flags(rows: list[dict[str, Any]]) -> list[Flag]:
    return [Flag(**{"dest": row["name"], **row, **_read(row)}) for row in rows]


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    default = row.get("default")
    choices = row.get("choices")
    return {
        "default": float(default) if row["type"] == "float" and isinstance(default, str) else default,
        "choices": tuple(choices) if choices else None,
    }


def _shipped() -> list[Flag]:
    return _flags(json.loads(SHIPPED.read_text(encoding="utf-8")))


def _write() -> None:
    rows = ",\n".join(f"  {json.dumps(row)}" for row in rows_of(own_parser()))
    SHIPPED.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print(f"wrote '{SHIPPED}'")


if __name__ == "__main__":
    _write()
