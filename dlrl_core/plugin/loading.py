"""Which plugins are installed, and what each of them adds: found in metadata, imported, its hooks called and checked.

pluggy drops the second of two entry points with one name, and stops at the first broken plugin;
`importlib.metadata.entry_points()` stops at the first malformed file of any distribution. So they are read here.
"""

from __future__ import annotations

import enum
import importlib.metadata
import inspect
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, EntryPoint, PackageMetadata
from typing import Any

import pluggy

from dlrl_core.hints import did_you_mean
from dlrl_core.plugin import hookspecs
from dlrl_core.plugin.contract import API_VERSION, FrameworkAdapter
from dlrl_core.plugin.hookspecs import KINDS, PROJECT, ImportPath

GROUP = "dlrl"
VARIABLE = "DLRL_PLUGINS"
_ALWAYS = frozenset(
    {"chaos", "doctor", "event_log", "jobs", "local_ray", "pages", "redis", "sqlite", "state", "vllm", "why"}
)
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
    def of(cls, entry_point: EntryPoint, metadata: PackageMetadata | None) -> PluginRecord:
        """The record of an entry point that nothing is known against yet; `metadata` is of its distribution."""
        name, version = (metadata["Name"], metadata["Version"]) if metadata else (None, None)
        return cls(name=entry_point.name, distribution=name, version=version, target=entry_point.value)

    @property
    def label(self) -> str:
        """The plugin in a sentence, such as "plugin 'verl' (dlrl 0.1.0)"."""
        return f"plugin '{self.name}' ({self.distribution_label})"

    @property
    def distribution_label(self) -> str:
        return " ".join(part for part in (self.distribution, self.version) if part) or "an unknown distribution"

    @property
    def is_of_dlrl(self) -> bool:
        """Whether it comes with dlrl."""
        return self.distribution == "dlrl"

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
        is_always = plugin.is_of_dlrl and plugin.name in _ALWAYS
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
            metadata = dist.metadata  # parsed on each access
            plugins = [PluginRecord.of(entry, metadata) for entry in dist.entry_points.select(group=GROUP)]
            name = normalised(metadata["Name"])
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


API_VERSION_WHEN_UNSAID = 1
HOOKS = sorted(KINDS)
FRAMEWORKS = "dlrl_frameworks"

Contributions = Mapping[str, Mapping[str, Any]]
"""What one plugin adds: for each hook, by name, an adapter, a function or a function's import path."""

_log = logging.getLogger("dlrl.plugin")


class WrongPlugin(Exception):
    """The plugin could be imported, but is not what the hooks ask for."""


class OtherApiVersion(Exception):
    """The plugin was written for another version of the hooks."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(f"speaks plugin API {version}, this dlrl speaks {API_VERSION}")


def load_plugins(
    installed: Sequence[PluginRecord], allow_list: AllowList
) -> Iterator[tuple[PluginRecord, Contributions | None]]:
    """Each plugin's record, and what it adds if it loaded. A refused or clashing one is never imported."""
    rivals: dict[str, list[PluginRecord]] = defaultdict(list)
    for plugin in installed:
        if allow_list.admits(plugin):
            rivals[plugin.name].append(plugin)
    for plugin in installed:
        if not allow_list.admits(plugin):
            yield replace(plugin, status=PluginStatus.NOT_ALLOWED, error=allow_list.refusal(plugin)), None
        elif len(rivals[plugin.name]) > 1:
            yield replace(plugin, status=PluginStatus.CLASH, error=_clash(rivals[plugin.name])), None
        else:
            yield load_plugin(plugin)


def _clash(rivals: Sequence[PluginRecord]) -> str:
    owners = " and ".join(f"{plugin.distribution_label} ({plugin.target})" for plugin in rivals)
    return (
        f"plugin '{rivals[0].name}' is registered by {owners}, so neither is loaded; uninstall one, "
        f"or set {VARIABLE} to the plugins you want, with '{rivals[0].qualified_name}' to choose that one"
    )


def load_plugin(plugin: PluginRecord) -> tuple[PluginRecord, Contributions | None]:
    """The plugin's record, and what it adds unless it is broken. Raises nothing but KeyboardInterrupt."""
    try:
        unsaid = API_VERSION if plugin.is_of_dlrl else API_VERSION_WHEN_UNSAID
        return plugin, _contributions(plugin.target, unsaid)
    except KeyboardInterrupt:
        raise
    except OtherApiVersion as error:
        outdated = "dlrl" if error.version > API_VERSION else plugin.distribution or "it"
        sentence = f"{plugin.label} {error}; update {outdated}"
        return replace(plugin, status=PluginStatus.API_MISMATCH, error=sentence), None
    except BaseException as error:  # noqa: BLE001 - code of others, which may even exit; the other plugins load on
        _log.debug("traceback of %s:", plugin.label, exc_info=error)
        return replace(plugin, status=PluginStatus.BROKEN, error=plugin.broken(described(error))), None


def import_function(path: ImportPath) -> Callable[..., Any]:
    """The function that a hook gave as its import path. Raises WrongPlugin with what is wrong."""
    try:
        function = _imported(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise WrongPlugin(described(error)) from error
    if not callable(function):
        raise WrongPlugin(f"that is {_kind(function)}; it must be callable")
    return function  # type: ignore[no-any-return]


def _imported(path: str) -> Any:
    """What 'module' or 'module:object' names."""
    return EntryPoint(name=path, value=path, group=GROUP).load()


def _contributions(target: str, unsaid: int) -> Contributions:
    """What the plugin adds. Raises WrongPlugin, OtherApiVersion, or whatever the plugin's code raises."""
    if not EntryPoint.pattern.match(target):
        raise WrongPlugin(f"its target '{target}' is not 'module' or 'module:object'")
    plugin = _imported(target)
    _check_api_version("DLRL_API_VERSION", getattr(plugin, "DLRL_API_VERSION", unsaid))
    manager = _register(plugin)
    functions = {hook: _functions(manager, hook, kind.several) for hook, kind in KINDS.items() if hook != FRAMEWORKS}
    return {FRAMEWORKS: _frameworks(manager), **functions}


def _check_api_version(where: str, version: object) -> None:
    if not isinstance(version, int):
        raise WrongPlugin(f"{where} is {version!r}; it must be an integer")
    if version != API_VERSION:
        raise OtherApiVersion(version)


def _register(plugin: object) -> pluggy.PluginManager:
    """A manager with this plugin alone, so that its failures are its own."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    callers = manager.get_hookcallers(plugin) or []
    if not callers:
        raise WrongPlugin(f"it implements no hook; mark one of {', '.join(HOOKS)} with @hookimpl")
    for caller in callers:
        if not caller.has_spec() and not all(impl.optionalhook for impl in caller.get_hookimpls()):
            hint = did_you_mean(caller.name, HOOKS)
            raise WrongPlugin(f"it implements the unknown hook '{caller.name}'{hint} known: {', '.join(HOOKS)}")
    return manager


def _results(manager: pluggy.PluginManager, hook: str) -> Iterator[Any]:
    """What the plugin's functions for a hook return. Called directly: pluggy drops a None in silence."""
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        yield implementation.function()


def _frameworks(manager: pluggy.PluginManager) -> dict[str, FrameworkAdapter]:
    adapters: dict[str, FrameworkAdapter] = {}
    for returned in _results(manager, FRAMEWORKS):
        if not isinstance(returned, list):
            raise WrongPlugin(f"dlrl_frameworks returned {_kind(returned)}; it must return a list of adapter classes")
        for cls in returned:
            adapter = _adapter(cls)
            if adapter.name in adapters:
                raise WrongPlugin(f"dlrl_frameworks returned the framework '{adapter.name}' twice")
            adapters[adapter.name] = adapter
    return adapters


def _adapter(cls: object) -> FrameworkAdapter:
    if not (isinstance(cls, type) and issubclass(cls, FrameworkAdapter)):
        raise WrongPlugin(
            f"dlrl_frameworks returned a list with {_kind(cls)}; each item must be a subclass of FrameworkAdapter"
        )
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise WrongPlugin(f"adapter '{cls.__name__}' has the name {name!r}; it must be a string that is not empty")
    _check_api_version(f"api_version of adapter '{cls.__name__}'", cls.api_version)
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise WrongPlugin(f"adapter '{cls.__name__}' does not implement {missing}")
    return cls()


def _functions(manager: pluggy.PluginManager, hook: str, what: str) -> dict[str, Any]:
    functions: dict[str, Any] = {}
    for returned in _results(manager, hook):
        if not isinstance(returned, dict):
            raise WrongPlugin(f"{hook} returned {_kind(returned)}; it must return a dict of {what} by name")
        for name, function in returned.items():
            if not isinstance(name, str) or not name:
                raise WrongPlugin(f"{hook} returned the name {name!r}; it must be a string that is not empty")
            functions[name] = _function(function, f"{hook} returned {_kind(function)} for '{name}'")
    return functions


def _function(given: object, what: str) -> Callable[..., Any] | ImportPath:
    if callable(given):
        return given
    if not isinstance(given, str):
        raise WrongPlugin(f"{what}; it must be callable, or an import path 'module:function'")
    found = EntryPoint.pattern.match(given)
    if found is None or not found["attr"]:
        raise WrongPlugin(f"{what}, '{given}'; an import path is 'module:function'")
    return given


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class '{value.__name__}'"
    return "None" if value is None else f"a value of type '{type(value).__name__}'"


def described(error: BaseException) -> str:
    """An error of a plugin's code by type and text; one of ours by its text."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - an exception of others that can't even be printed
        text = ""
    if isinstance(error, WrongPlugin):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
