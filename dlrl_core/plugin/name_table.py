"""NameTable: names that plugins register, each of which belongs to one plugin or to none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from dlrl_core.hints import did_you_mean

T = TypeVar("T")


class NameTable(Generic[T]):
    """All names of one kind, such as 'framework'. A name that two plugins claim is usable for neither."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._claims: dict[str, dict[str, T]] = {}

    def claim(self, name: str, value: T, *, label: str) -> None:
        """Register a name for the plugin that `label` names in a sentence."""
        self._claims.setdefault(name, {})[label] = value

    def usable(self) -> dict[str, T]:
        return {name: next(iter(claims.values())) for name, claims in sorted(self._claims.items()) if len(claims) == 1}

    def clashes(self) -> dict[str, str]:
        """The names that more than one plugin claims, each with a sentence that names the plugins."""
        return {name: self._clash(name) for name, claims in sorted(self._claims.items()) if len(claims) > 1}

    def clashes_of(self, label: str) -> list[str]:
        return [sentence for name, sentence in self.clashes().items() if label in self._claims[name]]

    def unknown(self, name: str, *, not_loaded: Iterable[str] = ()) -> str:
        """A sentence for a name that nobody claims; `not_loaded` are the plugins that might have."""
        registered, missing = list(self._claims), sorted(set(not_loaded))
        hint = did_you_mean(name, [*registered, *missing])
        known = f"registered: {', '.join(sorted(registered))}" if registered else "none is registered"
        tail = f"; plugins that did not load: {', '.join(missing)}" if missing else ""
        return f"unknown {self.kind} '{name}'{hint} {known}{tail}"

    def _clash(self, name: str) -> str:
        owners = " and ".join(self._claims[name])
        return (
            f"{self.kind} '{name}' is registered by {owners}, so neither can be used; "
            "uninstall one, or leave one out of DLRL_PLUGINS"
        )
