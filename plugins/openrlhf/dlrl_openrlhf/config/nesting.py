"""Dotted names and nested mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"actor.num_nodes": 2}` as `{"actor": {"num_nodes": 2}}`."""
    config: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        below = config
        for part in path:
            below = below.setdefault(part, {})
        below[last] = value
    return config


def leaves(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The other way round; keys may have dots themselves."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
