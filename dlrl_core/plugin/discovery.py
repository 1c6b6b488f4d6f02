"""Which plugins are installed, read from metadata, and which of them may be loaded: nothing here imports one.

pluggy's own walk drops the second of two entry points with one name, and stops at the first broken plugin;
`importlib.metadata.entry_points()` stops at the first malformed file of any distribution.
So dlrl walks through the distributions itself.
"""

from __future__ import annotations

import enum
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, EntryPoint

from dlrl_core.hints import did_you_mean

GROUP = "dlrl"
VARIABLE = "DLRL_PLUGINS"
_ALWAYS = frozenset({"chaos", "doctor", "event_log", "local_ray", "pages", "redis", "why"})
"""Plugins of the distribution dlrl that belong to its command and its stores: DLRL_PLUGINS does not leave them out."""


class PluginStatus(enum.StrEnum):
    """What became of an entry point. Only LOADED ones add anything."""

    LOADED = "loaded"
    BROKEN = "broken"
    CLASH = "clash"
    API_MISMATCH = "api mismatch"
    NOT_ALLOWED = "not allowed"


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """One entry point of the group `dlrl`, and what became of it."""

    name: str
    distribution: str | None
    version: str | None
    target: str
    """What the entry point names, such as 'dlrl_verl.plugin'."""
    status: PluginStatus = PluginStatus.LOADED
    error: str | None = None
    """What is wrong, in full sentences. A loaded plugin has one if something that it registers can't be used."""

    @classmethod
    def of(cls, entry_point: EntryPoint) -> PluginRecord:
        """The record of an entry point that nothing is known against yet."""
        dist = entry_point.dist
        name, version = (dist.metadata["Name"], dist.version) if dist else (None, None)
        return cls(name=entry_point.name, distribution=name, version=version, target=entry_point.value)

    @property
    def label(self) -> str:
        """The plugin in a sentence, such as "plugin 'verl' (dlrl 0.1.0)"."""
        return f"plugin '{self.name}' ({self.distribution_label})"

    @property
    def distribution_label(self) -> str:
        return " ".join(part for part in (self.distribution, self.version) if part) or "an unknown distribution"

    @property
    def qualified_name(self) -> str:
        """The plugin as DLRL_PLUGINS tells it from another of its name, such as 'acme-dist:acme'."""
        return f"{normalised(self.distribution or '')}:{self.name}"

    @property
    def summary(self) -> str | None:
        """The first line of `error`."""
        return self.error and self.error.partition("\n")[0]

    def broken(self, cause: str) -> str:
        """The sentence about a plugin that can't do what it registers."""
        return f"{self.label} is broken; update or uninstall {self.distribution or 'it'}: {cause}"


@dataclass(frozen=True)
class AllowList:
    """The words of DLRL_PLUGINS: 'name' or 'distribution:name'. None allows every plugin."""

    text: str | None

    @property
    def words(self) -> list[str]:
        return [word.strip() for word in (self.text or "").split(",") if word.strip()]

    def admits(self, plugin: PluginRecord) -> bool:
        is_always = plugin.distribution == "dlrl" and plugin.name in _ALWAYS
        return is_always or self.text is None or any(_matches(word, plugin) for word in self.words)

    def refusal(self, plugin: PluginRecord) -> str:
        return f"{plugin.label} is left out by {VARIABLE}='{self.text}'; add '{plugin.name}' to it"

    def problems(self, installed: Sequence[PluginRecord]) -> Iterator[str]:
        """One sentence for each word that is the name of no installed plugin."""
        known = sorted({plugin.name for plugin in installed})
        spellings = [*known, *(plugin.qualified_name for plugin in installed)]
        for word in self.words:
            if not any(_matches(word, plugin) for plugin in installed):
                hint = did_you_mean(word, spellings)
                yield f"{VARIABLE} names '{word}', which is not installed{hint} installed: {', '.join(known)}"


def installed_plugins() -> tuple[list[PluginRecord], list[PluginRecord]]:
    """Every plugin on `sys.path`, and a record of each distribution whose metadata can't be read."""
    found: list[PluginRecord] = []
    unreadable: list[PluginRecord] = []
    seen: set[str] = set()
    for dist in importlib.metadata.distributions():
        if not _has_group(dist):
            continue
        try:
            plugins = [PluginRecord.of(entry) for entry in dist.entry_points.select(group=GROUP)]
            name = normalised(dist.metadata["Name"])
        except Exception as error:  # noqa: BLE001 - the parsers raise whatever a malformed file leads them to
            unreadable.append(_unreadable(dist, error))
            continue
        if name not in seen:  # a second copy is shadowed, as its modules are
            seen.add(name)
            found += plugins
    return unique(found), unreadable


def unique(plugins: Iterable[PluginRecord]) -> list[PluginRecord]:
    """The plugins sorted by name, each once: a distribution that is found twice is one."""
    by_key = {(plugin.qualified_name, plugin.target): plugin for plugin in reversed(list(plugins))}
    return [by_key[key] for key in sorted(by_key, key=lambda key: (by_key[key].name, key))]


def normalised(distribution: str) -> str:
    """A distribution's name as PEP 503 compares them."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _matches(word: str, plugin: PluginRecord) -> bool:
    distribution, colon, name = word.partition(":")
    qualified = f"{normalised(distribution)}:{name}" if colon else None
    return word == plugin.name or qualified == plugin.qualified_name


def _has_group(dist: Distribution) -> bool:
    try:
        return f"[{GROUP}]" in (dist.read_text("entry_points.txt") or "")
    except (OSError, UnicodeDecodeError):
        return False


def _unreadable(dist: Distribution, error: Exception) -> PluginRecord:
    place = str(dist.locate_file(""))
    try:
        name, version = dist.metadata["Name"], dist.version
    except Exception:  # noqa: BLE001 - the metadata may be what can't be read
        name, version = None, None
    record = PluginRecord(
        name=name or "unknown", distribution=name, version=version, target=place, status=PluginStatus.BROKEN
    )
    what = f"the entry points of {record.distribution_label} in '{place}' can't be read"
    return replace(record, error=f"{what}; reinstall it: {type(error).__name__}: {error}")
