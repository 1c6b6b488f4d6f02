"""Nested mappings by dotted keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class KeyTree:
    """All keys of a config, sections included."""

    def __init__(self, config: Any) -> None:
        self.config: dict[str, Any] = config

    def __contains__(self, key: str) -> bool:
        *above, last = key.split(".")
        section = self._section(above)
        return section is not None and last in section

    def __iter__(self) -> Iterator[str]:
        return _keys(self.config, "")

    def get(self, key: str) -> Any:
        """None also if the key is not there."""
        *above, last = key.split(".")
        return (self._section(above) or {}).get(last)

    def set(self, key: str, value: Any) -> None:
        *above, last = key.split(".")
        section = self.config
        for part in above:
            below = section.get(part)
            section[part] = below if isinstance(below, dict) else {}
            section = section[part]
        section[last] = value

    def remove(self, key: str) -> None:
        *above, last = key.split(".")
        (self._section(above) or {}).pop(last, None)

    def _section(self, path: list[str]) -> dict[str, Any] | None:
        section: Any = self.config
        for part in path:
            section = section.get(part) if isinstance(section, dict) else None
        return section if isinstance(section, dict) else None


def _keys(config: Mapping[str, Any], above: str) -> Iterator[str]:
    for key, value in config.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{key}.")
