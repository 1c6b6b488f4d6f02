"""What each installed plugin adds: its module imported, its hooks called, what they return checked."""

from __future__ import annotations

import inspect
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from dlrl_core.hints import did_you_mean
from dlrl_core.plugin import hookspecs
from dlrl_core.plugin.contract import API_VERSION, FrameworkAdapter
from dlrl_core.plugin.discovery import GROUP, VARIABLE, AllowList, PluginRecord, PluginStatus
from dlrl_core.plugin.hookspecs import KINDS, PROJECT, ImportPath

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
        return plugin, _contributions(plugin.target)
    except KeyboardInterrupt:
        raise
    except OtherApiVersion as error:
        outdated = "dlrl" if error.version > API_VERSION else plugin.distribution or "it"
        sentence = f"{plugin.label} {error}; update {outdated}"
        return replace(plugin, status=PluginStatus.API_MISMATCH, error=sentence), None
    except BaseException as error:  # noqa: BLE001 - code of others, which may even exit; the other plugins load on
        _log.debug("traceback of %s:", plugin.label, exc_info=error)
        return replace(plugin, status=PluginStatus.BROKEN, error=plugin.broken(_describe(error))), None


def import_function(path: ImportPath) -> Callable[..., Any]:
    """The function that a hook gave as its import path. Raises WrongPlugin with what is wrong."""
    try:
        function = _imported(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise WrongPlugin(_describe(error)) from error
    if not callable(function):
        raise WrongPlugin(f"that is {_kind(function)}; it must be callable")
    return function  # type: ignore[no-any-return]


def _imported(path: str) -> Any:
    """What 'module' or 'module:object' names."""
    return EntryPoint(name=path, value=path, group=GROUP).load()


def _contributions(target: str) -> Contributions:
    """What the plugin adds. Raises WrongPlugin, OtherApiVersion, or whatever the plugin's code raises."""
    if not EntryPoint.pattern.match(target):
        raise WrongPlugin(f"its target '{target}' is not 'module' or 'module:object'")
    plugin = _imported(target)
    _check_api_version("DLRL_API_VERSION", getattr(plugin, "DLRL_API_VERSION", API_VERSION_WHEN_UNSAID))
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


def _describe(error: BaseException) -> str:
    """An error of a plugin's code by type and text; one of ours by its text."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - an exception of others that can't even be printed
        text = ""
    if isinstance(error, WrongPlugin):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
