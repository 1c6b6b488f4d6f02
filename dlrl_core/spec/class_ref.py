"""ClassRef: a class by module and name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClassRef:
    """A class by module and name, imported only where it runs."""

    module: str
    class_name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.class_name}"
