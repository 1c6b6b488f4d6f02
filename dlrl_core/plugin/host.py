"""PluginHost: all plugins of a process, and what they add, by name.

A plugin that is broken, clashes or speaks another API version is kept on record and breaks only whoever asks
for its name. Each problem is logged once per process to the logger `dlrl.plugin`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from dlrl_core import __version__
from dlrl_core.errors import PluginError, UnknownFrameworkError
from dlrl_core.plugin.allow_list import VARIABLE, AllowList
from dlrl_core.plugin.contract import FrameworkAdapter
from dlrl_core.plugin.discovery import GROUP, InstalledPlugin, installed_plugins, unique
from dlrl_core.plugin.hookspecs import (
    KINDS,
    Command,
    Detector,
    DoctorCheck,
    EventSink,
    PlanFormat,
    Policy,
    StoreOpener,
)
from dlrl_core.plugin.loading import Contributions
from dlrl_core.plugin.name_table import NameTable
from dlrl_core.plugin.record import PluginRecord, PluginStatus
from dlrl_core.plugin.settlement import load, settle

T = TypeVar("T")

BUILTIN = InstalledPlugin(
    name="builtin",
    distribution="dlrl",
    version=__version__,
    entry_point=EntryPoint(name="builtin", value="dlrl_core.plugin.builtin", group=GROUP),
)
"""Always loaded: DLRL_PLUGINS can't leave it out, and an entry point of its name does not clash with it."""

_log = logging.getLogger("dlrl.plugin")
_logged: set[str] = set()
_HARMLESS = (PluginStatus.LOADED, PluginStatus.NOT_ALLOWED)


class PluginHost:
    """What the plugins of this process add. Made by `discover`; does not change afterwards."""

    def __init__(
        self,
        plugins: Iterable[tuple[PluginRecord, Contributions | None]],
        *,
        allow_problems: Iterable[str] = (),
    ) -> None:
        self._frameworks: NameTable[FrameworkAdapter] = NameTable("framework")
        self._functions: dict[str, NameTable[Any]] = {hook: NameTable(one) for hook, (one, _) in KINDS.items()}
        self._allow_problems = list(allow_problems)
        plugins = list(plugins)
        for record, added in plugins:
            if added is not None:
                self._claim(record.label, added)
        self.records = tuple(self._with_clashes(record) for record, _ in plugins)

    @classmethod
    def discover(cls, allow: str | None = None, entry_points: Iterable[EntryPoint] | None = None) -> PluginHost:
        """Load every allowed plugin that is installed, or of the entry points given.

        `allow` has the form of DLRL_PLUGINS: None allows all, "" none. A plugin that is not allowed, or
        clashes, is never imported. Logs each problem; raises nothing but KeyboardInterrupt.
        """
        if entry_points is None:
            installed, unreadable = installed_plugins()
        else:
            installed, unreadable = unique(InstalledPlugin.of(entry) for entry in entry_points), []
        allow_list = AllowList(allow)
        torn: list[tuple[PluginRecord, None]] = [(record, None) for record in unreadable]
        host = cls(
            [load(BUILTIN), *settle(installed, allow_list), *torn],
            allow_problems=allow_list.problems([BUILTIN, *installed]),
        )
        _log_once(host.problems())
        return host

    def framework(self, name: str) -> FrameworkAdapter:
        """The adapter of that name. Raises UnknownFrameworkError; PluginError if its plugin did not load."""
        return self._find(self._frameworks, name, UnknownFrameworkError)

    def frameworks(self) -> Mapping[str, FrameworkAdapter]:
        """The frameworks that can be asked for. Their own distributions may still be missing."""
        return self._frameworks.usable()

    def policy(self, name: str) -> Policy:
        """The distribution policy of that name. Raises PluginError."""
        policy: Policy = self._function("dlrl_policies", name)
        return policy

    def store_opener(self, scheme: str) -> StoreOpener:
        """The function that opens stores of that URL scheme. Raises PluginError."""
        opener: StoreOpener = self._function("dlrl_stores", scheme)
        return opener

    def plan_format(self, name: str) -> PlanFormat:
        """The function that writes a plan in that format. Raises PluginError."""
        written: PlanFormat = self._function("dlrl_plan_formats", name)
        return written

    def commands(self) -> Mapping[str, Command]:
        """The commands that plugins add to `dlrl`."""
        return self._functions["dlrl_commands"].usable()

    def detectors(self) -> Mapping[str, Detector]:
        return self._functions["dlrl_detectors"].usable()

    def event_sinks(self) -> Mapping[str, EventSink]:
        return self._functions["dlrl_event_sinks"].usable()

    def doctor_checks(self) -> Mapping[str, DoctorCheck]:
        return self._functions["dlrl_doctor_checks"].usable()

    def problems(self) -> list[str]:
        """One sentence for each plugin that did not load, each clash, and each wrong word of DLRL_PLUGINS."""
        failed = (record for record in self.records if record.status not in _HARMLESS)
        clashes = (sentence for table in self._tables for sentence in table.clashes().values())
        sentences = (*(record.summary or "" for record in failed), *clashes, *self._allow_problems)
        return list(dict.fromkeys(sentences))

    @property
    def _tables(self) -> tuple[NameTable[Any], ...]:
        return (self._frameworks, *self._functions.values())

    def _function(self, hook: str, name: str) -> Any:
        return self._find(self._functions[hook], name, PluginError)

    def _find(self, table: NameTable[T], name: str, unknown: type[PluginError]) -> T:
        usable = table.usable()
        if name in usable:
            return usable[name]
        if clash := table.clashes().get(name):
            raise PluginError(clash)
        not_loaded = [record for record in self.records if record.status is not PluginStatus.LOADED]
        for record in sorted(not_loaded, key=lambda record: record.status in _HARMLESS):
            if record.name == name:
                raise PluginError(record.summary)
        raise unknown(table.unknown(name, not_loaded=[record.name for record in not_loaded]))

    def _claim(self, label: str, added: Contributions) -> None:
        for name, adapter in added.frameworks.items():
            self._frameworks.claim(name, adapter, label=label)
        for hook, functions in added.functions.items():
            for name, function in functions.items():
                self._functions[hook].claim(name, function, label=label)

    def _with_clashes(self, record: PluginRecord) -> PluginRecord:
        if record.status is not PluginStatus.LOADED:
            return record
        clashes = [sentence for table in self._tables for sentence in table.clashes_of(record.label)]
        return replace(record, error="\n".join(clashes)) if clashes else record


@functools.cache
def plugin_host() -> PluginHost:
    """The plugins of this process, discovered on the first call with DLRL_PLUGINS as it is then."""
    return PluginHost.discover(allow=os.environ.get(VARIABLE))


def reset_plugin_host() -> None:
    """Forget the plugins and what was logged about them, so that a test can discover anew."""
    plugin_host.cache_clear()
    _logged.clear()


def _log_once(problems: Iterable[str]) -> None:
    for problem in problems:
        if problem not in _logged:
            _logged.add(problem)
            _log.warning("%s", problem)
