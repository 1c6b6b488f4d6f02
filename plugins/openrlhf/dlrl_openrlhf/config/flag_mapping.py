"""A config given as a mapping or a YAML file: nested (`actor: {num_nodes: 2}`), dotted or flat keys, or a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlrl_openrlhf.config.flag_table import Flag
from dlrl_openrlhf.config.flag_words import Vocabulary
from dlrl_openrlhf.config.nesting import leaves
from dlrl_openrlhf.config.said import SaidFlag


def flags_in(config: Mapping[str, Any], vocabulary: Vocabulary, place: str, problems: list[str]) -> list[SaidFlag]:
    """What the mapping says, in its order. `place` is its file in error messages, or 'config'."""
    found = []
    for key, value in leaves(config):
        name = key.removeprefix("--")
        where = f"{place}, key '{key}'"
        flag = vocabulary.get(name)
        if flag is None:
            problems.append(vocabulary.unknown(name, where))
        elif value is None and flag.default is None:
            continue  # what the user left open is as if it were not there
        else:
            try:
                found.append(SaidFlag(flag, _value(flag, value), where))
            except ValueError as error:
                problems.append(f"flag '--{name}' ({where}) {error}")
    return found


def _value(flag: Flag, value: Any) -> Any:
    """As the flag wants it; raises ValueError with what is wrong."""
    if value is None:
        raise ValueError(f"is null; leave it out for OpenRLHF's default of {flag.default!r}")
    if flag.type == "bool":
        if not isinstance(value, bool):
            raise ValueError(f"is {value!r}; it must be true or false")
        return value is flag.const
    if not flag.is_list:
        return _typed(flag, value)
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not flag.fewest <= len(values) <= flag.most:
        raise ValueError(f"has {len(values)} values; it takes {flag.arity}")
    return [_typed(flag, one) for one in values]


def _typed(flag: Flag, value: Any) -> Any:
    if isinstance(value, bool | list | tuple):
        raise ValueError(f"is a {type(value).__name__}; it must be one {flag.type}")
    return flag.typed(str(value))
