"""DLRL_PLUGINS: which plugins may be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlrl_core.hints import did_you_mean
from dlrl_core.plugin.discovery import InstalledPlugin, normalised

VARIABLE = "DLRL_PLUGINS"
_ALWAYS = frozenset({"chaos", "doctor", "event_log", "pages", "redis"})
"""Plugins of the distribution dlrl that belong to its command and its stores: the variable does not leave them out."""


@dataclass(frozen=True)
class AllowList:
    """The words of DLRL_PLUGINS: 'name' or 'distribution:name'. None allows every plugin."""

    text: str | None

    @property
    def words(self) -> list[str]:
        return [word.strip() for word in (self.text or "").split(",") if word.strip()]

    def admits(self, plugin: InstalledPlugin) -> bool:
        is_always = plugin.distribution == "dlrl" and plugin.name in _ALWAYS
        return is_always or self.text is None or any(_matches(word, plugin) for word in self.words)

    def refusal(self, plugin: InstalledPlugin) -> str:
        return f"{plugin.label} is left out by {VARIABLE}='{self.text}'; add '{plugin.name}' to it"

    def problems(self, installed: Sequence[InstalledPlugin]) -> Iterator[str]:
        """One sentence for each word that no installed plugin answers to."""
        known = sorted({plugin.name for plugin in installed})
        spellings = [*known, *(plugin.qualified_name for plugin in installed)]
        for word in self.words:
            if not any(_matches(word, plugin) for plugin in installed):
                hint = did_you_mean(word, spellings)
                yield f"{VARIABLE} names '{word}', which is not installed{hint} installed: {', '.join(known)}"


def _matches(word: str, plugin: InstalledPlugin) -> bool:
    distribution, colon, name = word.partition(":")
    qualified = f"{normalised(distribution)}:{name}" if colon else None
    return word == plugin.name or qualified == plugin.qualified_name
