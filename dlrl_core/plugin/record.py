"""PluginRecord: one entry point and what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PluginStatus(enum.StrEnum):
    """What became of an entry point. Only LOADED ones add anything."""

    LOADED = "loaded"
    BROKEN = "broken"
    CLASH = "clash"
    API_MISMATCH = "api mismatch"
    NOT_ALLOWED = "not allowed"


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """One entry point of the group `dlrl`."""

    name: str
    distribution: str | None
    version: str | None
    target: str
    """What the entry point names, such as 'dlrl_verl.plugin'."""
    status: PluginStatus
    error: str | None = None
    """What is wrong, in full sentences. A loaded plugin has one if a name it registers is not its alone."""

    @property
    def label(self) -> str:
        """The plugin in a sentence, such as "plugin 'verl' (dlrl 0.1.0)"."""
        return plugin_label(self.name, self.distribution, self.version)

    @property
    def summary(self) -> str | None:
        """The first line of `error`."""
        return self.error and self.error.partition("\n")[0]


def distribution_label(distribution: str | None, version: str | None) -> str:
    return " ".join(part for part in (distribution, version) if part) or "an unknown distribution"


def plugin_label(name: str, distribution: str | None, version: str | None) -> str:
    return f"plugin '{name}' ({distribution_label(distribution, version)})"
