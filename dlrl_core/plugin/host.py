"""PluginHost: all plugins of a process, and what they add, by name.

A plugin that is broken, clashes or speaks another API version is kept on record; only a request for its name fails.
Each problem is logged once per process to the logger `dlrl.plugin`.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

from dlrl_core import __version__
from dlrl_core.errors import PluginError, UnknownFrameworkError
from dlrl_core.hints import did_you_mean
from dlrl_core.plugin import hookspecs as hooks
from dlrl_core.plugin.blame import Passing, blame_adapter, blaming
from dlrl_core.plugin.contract import FrameworkAdapter
from dlrl_core.plugin.hookspecs import KINDS
from dlrl_core.plugin.loading import (
    FRAMEWORKS,
    VARIABLE,
    AllowList,
    Contributions,
    PluginRecord,
    PluginStatus,
    WrongPlugin,
    import_function,
    installed_plugins,
    load_plugin,
    load_plugins,
    unique,
)

_log = logging.getLogger("dlrl.plugin")
_events_log = logging.getLogger("dlrl.events")
_LAST_EVENTS_S = 5.0
_logged: set[str] = set()
_HARMLESS = (PluginStatus.LOADED, PluginStatus.NOT_ALLOWED)


class _Builtin:
    """What dlrl itself adds, through the same hooks as any plugin."""

    @hooks.hookimpl
    def dlrl_policies(self) -> dict[str, hooks.Policy | hooks.ImportPath]:
        policies = "dlrl_core.plan.planner"
        return {"separate_sync": f"{policies}:separate_sync", "colocate_sync": f"{policies}:colocate_sync"}

    @hooks.hookimpl
    def dlrl_detectors(self) -> dict[str, hooks.Detector | hooks.ImportPath]:
        return {"hang": "dlrl_core.failover.finding:find_hangs"}


builtin = _Builtin()

BUILTIN = PluginRecord(name="builtin", distribution="dlrl", version=__version__, target="dlrl_core.plugin.host:builtin")
"""Always loaded: DLRL_PLUGINS can't leave it out, and an entry point of its name does not clash with it."""


class NameTable:
    """All names of one kind, such as 'framework'. A name that two plugins register is usable for neither."""

    def __init__(self, kind: str, of_dlrls_plugins: Sequence[str] = ()) -> None:
        self._kind = kind
        self._of_dlrls_plugins = of_dlrls_plugins
        self._claims: dict[str, dict[PluginRecord, Any]] = {}
        self._refused: dict[str, list[PluginRecord]] = {}
        """The plugins that register a name of dlrl's."""

    def claim(self, name: str, value: Any, owner: PluginRecord) -> None:
        if name in self._of_dlrls_plugins and not owner.is_of_dlrl:
            self._refused.setdefault(name, []).append(owner)
        else:
            self._claims.setdefault(name, {})[owner] = value

    def usable(self) -> dict[str, tuple[PluginRecord, Any]]:
        """The names that belong to one plugin alone, sorted, each with its plugin and its value."""
        alone = sorted(name for name, claims in self._claims.items() if len(claims) == 1)
        return {name: next(iter(self._claims[name].items())) for name in alone}

    def clashes(self) -> dict[str, str]:
        """The names that more than one plugin registers, or that belong to dlrl, each with a sentence about them."""
        return {name: self._clash(name) for name in sorted(self._owners_at_odds())}

    def clashes_of(self, owner: PluginRecord) -> list[str]:
        return [self._clash(name) for name, owners in sorted(self._owners_at_odds().items()) if owner in owners]

    def _owners_at_odds(self) -> dict[str, list[PluginRecord]]:
        return {name: list(claims) for name, claims in self._claims.items() if len(claims) > 1} | self._refused

    def unknown(self, name: str, *, not_loaded: Iterable[str] = ()) -> str:
        """The sentence about a name that no plugin registers; `not_loaded` are the plugins that might have."""
        registered, missing = list({**self._claims, **self._refused}), sorted(set(not_loaded))
        hint = did_you_mean(name, [*registered, *missing])
        known = f"registered: {', '.join(sorted(registered))}" if registered else "none is registered"
        tail = f"; plugins that did not load: {', '.join(missing)}" if missing else ""
        return f"unknown {self._kind} '{name}'{hint} {known}{tail}"

    def what(self, name: str) -> str:
        return f"{self._kind} '{name}'"

    def _clash(self, name: str) -> str:
        owners = " and ".join(owner.label for owner in self._owners_at_odds()[name])
        if name in self._refused:
            return (
                f"{self.what(name)} of {owners} has a name that belongs to dlrl itself, so it can't be used; rename it"
            )
        return (
            f"{self.what(name)} is registered by {owners}, so neither can be used; "
            "uninstall one, or leave one out of DLRL_PLUGINS"
        )


class PluginHost:
    """What the plugins of this process add. Made by `discover`; functions are imported when first asked for."""

    def __init__(
        self,
        plugins: Iterable[tuple[PluginRecord, Contributions | None]],
        *,
        allow_problems: Iterable[str] = (),
    ) -> None:
        self._tables = {hook: NameTable(kind.one, kind.of_dlrls_plugins) for hook, kind in KINDS.items()}
        self._allow_problems = list(allow_problems)
        self._unusable: dict[tuple[str, str], tuple[PluginRecord, str]] = {}
        loaded = list(plugins)
        for record, added in loaded:
            for hook, values in (added or {}).items():
                for name, value in values.items():
                    self._tables[hook].claim(name, value, record)
                    if hook == FRAMEWORKS:
                        blame_adapter(value, record)
        self._records = tuple(record for record, _ in loaded)

    @classmethod
    def discover(cls, allow: str | None = None, entry_points: Iterable[EntryPoint] | None = None) -> PluginHost:
        """Load every allowed plugin that is installed, or of the entry points given.

        `allow` has the form of DLRL_PLUGINS: None allows all, "" none. A plugin that is not allowed, or
        clashes, is never imported. Logs each problem; raises nothing but KeyboardInterrupt.
        """
        if entry_points is None:
            installed, unreadable = installed_plugins()
        else:
            given = [PluginRecord.of(entry, entry.dist.metadata if entry.dist else None) for entry in entry_points]
            installed, unreadable = unique(given), []
        allow_list = AllowList(allow)
        torn: list[tuple[PluginRecord, None]] = [(record, None) for record in unreadable]
        host = cls(
            [load_plugin(BUILTIN), *load_plugins(installed, allow_list), *torn],
            allow_problems=allow_list.problems([BUILTIN, *installed]),
        )
        _log_once(host.problems())
        return host

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """Every entry point and what became of it; what can't be used of a loaded plugin is in its `error`."""
        return tuple(self._with_errors(record) for record in self._records)

    def framework(self, name: str) -> FrameworkAdapter:
        """The adapter of that name. Raises UnknownFrameworkError; PluginError if its plugin did not load."""
        adapter: FrameworkAdapter = self._find(FRAMEWORKS, name, UnknownFrameworkError)[1]
        return adapter

    def frameworks(self) -> Mapping[str, FrameworkAdapter]:
        """The frameworks that can be asked for. Their own distributions may still be missing."""
        return {name: adapter for name, (_, adapter) in self._tables[FRAMEWORKS].usable().items()}

    def frameworks_of(self, plugin: PluginRecord) -> list[FrameworkAdapter]:
        """Those that this plugin adds, of `frameworks()`."""
        bare = replace(plugin, error=None)
        return [adapter for owner, adapter in self._tables[FRAMEWORKS].usable().values() if owner == bare]

    def policy(self, name: str) -> hooks.Policy:
        """The distribution policy of that name. Raises PluginError."""
        return self._function("dlrl_policies", name)

    def store_opener(self, scheme: str) -> hooks.StoreOpener:
        """The function that opens stores of that URL scheme. Raises PluginError."""
        return self._function("dlrl_stores", scheme)

    def state_keeper(self, name: str) -> hooks.ImportPath:
        """The import path of the keeper class of that name. Raises PluginError."""
        found = self._import("dlrl_state_keepers", name, self._find("dlrl_state_keepers", name, PluginError)[1])
        return f"{found.__module__}:{found.__qualname__}"

    def cluster_starter(self, name: str) -> hooks.ClusterStarter:
        """The function that returns the cluster of that name. Raises PluginError."""
        return self._function("dlrl_clusters", name)

    def plan_format(self, name: str) -> hooks.PlanFormat:
        """The function that writes a plan in that format. Raises PluginError."""
        return self._function("dlrl_plan_formats", name)

    def commands(self, names: Sequence[str] | None = None) -> Mapping[str, hooks.Command]:
        """The commands that plugins add to `dlrl`, or those of these names; others are not imported then."""
        return self._all_functions("dlrl_commands", names)

    def refuse(self, hook: str, name: str, why: str) -> str:
        """Keep for `problems` and `records` that what a plugin registered there can't be used; returns the sentence."""
        owner, _ = self._tables[hook].usable()[name]
        sentence = owner.broken(f"{self._tables[hook].what(name)} {why}").partition("\n")[0]
        self._unusable[hook, name] = owner, sentence
        return sentence

    def blaming(self, hook: str, name: str, function: Callable[..., Any], *, but: Passing = ()) -> Callable[..., Any]:
        """The function that a plugin registered there; what it raises, `but` for these, is an error of the plugin."""
        return blaming(function, self._tables[hook].usable()[name][0], self._tables[hook].what(name), but)

    def detectors(self) -> Mapping[str, hooks.Detector]:
        return self._all_functions("dlrl_detectors")

    def event_sinks(self) -> Mapping[str, hooks.EventSink]:
        return self._all_functions("dlrl_event_sinks")

    def plan_advisers(self) -> Mapping[str, hooks.PlanAdviser]:
        return self._all_functions("dlrl_plan_advisers")

    def doctor_checks(self) -> Mapping[str, hooks.DoctorCheck]:
        hook = "dlrl_doctor_checks"
        return {name: self.blaming(hook, name, check) for name, check in self._all_functions(hook).items()}

    def import_all(self) -> None:
        """Import every function that was given as an import path, so that `problems` and `records` name broken ones."""
        for hook in KINDS:
            self._all_functions(hook)

    def problems(self, hook: str | None = None) -> list[str]:
        """One sentence for each thing that can't be used: of one hook's functions, or of everything.

        These are plugins that did not load, clashes of names, wrong words of DLRL_PLUGINS, import paths that were
        tried and could not be imported, and what was refused by `refuse`.
        """
        unusable = [text for (of, _), (_, text) in self._unusable.items() if hook in (None, of)]
        if hook is not None:
            return [*self._tables[hook].clashes().values(), *unusable]
        failed = (record.summary or "" for record in self._records if record.status not in _HARMLESS)
        clashes = (sentence for table in self._tables.values() for sentence in table.clashes().values())
        return list(dict.fromkeys([*failed, *clashes, *unusable, *self._allow_problems]))

    def _function(self, hook: str, name: str) -> Callable[..., Any]:
        return self.blaming(hook, name, self._import(hook, name, self._find(hook, name, PluginError)[1]))

    def _all_functions(self, hook: str, names: Sequence[str] | None = None) -> dict[str, Callable[..., Any]]:
        """Those that can be imported, of the names if some are given; each other one is logged, once."""
        functions = {}
        usable = self._tables[hook].usable()
        for name, given in [(name, given) for name, (_, given) in usable.items() if names is None or name in names]:
            try:
                functions[name] = self._import(hook, name, given)
            except PluginError as error:
                _log_once([str(error)])
        return functions

    def _import(self, hook: str, name: str, given: Any) -> Callable[..., Any]:
        """The function itself. Raises PluginError, and keeps it for `problems`, if its path can't be imported."""
        if not isinstance(given, str):
            return given  # type: ignore[no-any-return]
        try:
            return import_function(given)
        except WrongPlugin as error:
            raise PluginError(self.refuse(hook, name, f"is '{given}': {error}")) from error

    def _find(self, hook: str, name: str, unknown: type[PluginError]) -> tuple[PluginRecord, Any]:
        table = self._tables[hook]
        usable = table.usable()
        if name in usable:
            return usable[name]
        if clash := table.clashes().get(name):
            raise PluginError(clash)
        not_loaded = [record for record in self._records if record.status is not PluginStatus.LOADED]
        for record in sorted(not_loaded, key=lambda record: record.status in _HARMLESS):
            if record.name == name:
                raise PluginError(record.summary)
        raise unknown(table.unknown(name, not_loaded=[record.name for record in not_loaded]))

    def _with_errors(self, record: PluginRecord) -> PluginRecord:
        if record.status is not PluginStatus.LOADED:
            return record
        errors = [sentence for table in self._tables.values() for sentence in table.clashes_of(record)]
        errors += [text for owner, text in self._unusable.values() if owner == record]
        return replace(record, error="\n".join(errors)) if errors else record


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


class EventSinks:
    """Calls the sinks of all plugins with each journal event of a job, in order, in one thread.

    A sink that fails is reported once and kept.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._events: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._failed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="dlrl-event-sinks", daemon=True)
        self._thread.start()

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Hand over events that are part of the record now, as plain values; returns at once."""
        for event in events:
            self._events.put(event)

    def close(self) -> None:
        """Wait a few seconds until the sinks have what was handed over."""
        self._events.put(None)
        self._thread.join(_LAST_EVENTS_S)

    def _run(self) -> None:
        sinks = plugin_host().event_sinks()
        while (event := self._events.get()) is not None:
            for name, sink in sinks.items():
                self._call(name, sink, event)

    def _call(self, name: str, sink: hooks.EventSink, event: Mapping[str, Any]) -> None:
        try:
            sink(self._job, event)
        except Exception as error:  # noqa: BLE001 - code of a plugin: it must not disturb the job
            if name not in self._failed:
                self._failed.add(name)
                _events_log.warning("event sink '%s' failed: %s: %s", name, type(error).__name__, error)
