"""Which plugins are installed, read from metadata: nothing here imports one.

pluggy's own walk drops the second of two entry points with one name, and stops at the first broken plugin;
`importlib.metadata.entry_points()` stops at the first malformed file of any distribution.
So we walk ourselves.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint

from dlrl_core.plugin.record import PluginRecord, PluginStatus, distribution_label, plugin_label

GROUP = "dlrl"


@dataclass(frozen=True, kw_only=True)
class InstalledPlugin:
    """An entry point and the distribution it came from."""

    name: str
    distribution: str | None
    version: str | None
    entry_point: EntryPoint

    @classmethod
    def of(cls, entry_point: EntryPoint) -> InstalledPlugin:
        dist = entry_point.dist
        return cls(
            name=entry_point.name,
            distribution=dist.metadata["Name"] if dist else None,
            version=dist.version if dist else None,
            entry_point=entry_point,
        )

    @property
    def target(self) -> str:
        return self.entry_point.value

    @property
    def label(self) -> str:
        return plugin_label(self.name, self.distribution, self.version)

    @property
    def distribution_label(self) -> str:
        return distribution_label(self.distribution, self.version)

    @property
    def qualified_name(self) -> str:
        """The plugin as DLRL_PLUGINS tells it from another of its name, such as 'acme-dist:acme'."""
        return f"{normalised(self.distribution or '')}:{self.name}"

    def record(self, status: PluginStatus, error: str | None = None) -> PluginRecord:
        return PluginRecord(
            name=self.name,
            distribution=self.distribution,
            version=self.version,
            target=self.target,
            status=status,
            error=error,
        )


def normalised(distribution: str) -> str:
    """A distribution's name as PEP 503 compares them."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def installed_plugins() -> tuple[list[InstalledPlugin], list[PluginRecord]]:
    """Every plugin on `sys.path`, and a record of each distribution whose metadata can't be read."""
    found: list[InstalledPlugin] = []
    unreadable: list[PluginRecord] = []
    seen: set[str] = set()
    for dist in importlib.metadata.distributions():
        if not _has_group(dist):
            continue
        try:
            plugins = [InstalledPlugin.of(entry) for entry in dist.entry_points.select(group=GROUP)]
            name = normalised(dist.metadata["Name"])
        except Exception as error:  # noqa: BLE001 - the parsers raise whatever a malformed file leads them to
            unreadable.append(_unreadable(dist, error))
            continue
        if name not in seen:  # a second copy is shadowed, as its modules are
            seen.add(name)
            found += plugins
    return unique(found), unreadable


def unique(plugins: Iterable[InstalledPlugin]) -> list[InstalledPlugin]:
    """The plugins sorted by name, each once: a distribution that is found twice is one."""
    by_key = {(plugin.qualified_name, plugin.target): plugin for plugin in reversed(list(plugins))}
    return [by_key[key] for key in sorted(by_key, key=lambda key: (by_key[key].name, key))]


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
    owner = distribution_label(name, version)
    return PluginRecord(
        name=name or "unknown",
        distribution=name,
        version=version,
        target=place,
        status=PluginStatus.BROKEN,
        error=(
            f"the entry points of {owner} in '{place}' can't be read; reinstall it: {type(error).__name__}: {error}"
        ),
    )
