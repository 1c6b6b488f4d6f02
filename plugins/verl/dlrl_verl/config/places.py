"""Where each key of a config was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Places:
    """For error messages, such as 'train.sh:14'."""

    where: Mapping[str, str]
    otherwise: str
    """Of keys that are in no place of their own."""

    def of(self, key: str) -> str:
        return self.where.get(key, self.otherwise)
