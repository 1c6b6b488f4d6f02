"""What one plugin adds: its module imported, its hooks called, what they return checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from dlrl_core.hints import did_you_mean
from dlrl_core.plugin import hookspecs
from dlrl_core.plugin.contract import API_VERSION, FrameworkAdapter
from dlrl_core.plugin.hookspecs import KINDS, PROJECT

API_VERSION_WHEN_UNSAID = 1
HOOKS = sorted(name for name in vars(hookspecs) if name.startswith("dlrl_"))


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """What one plugin adds, by name."""

    frameworks: Mapping[str, FrameworkAdapter]
    functions: Mapping[str, Mapping[str, Any]]
    """For each hook of `KINDS`, what it returned."""


class WrongPlugin(Exception):
    """The plugin could be imported, but is not what the hooks ask for."""


class OtherApiVersion(Exception):
    """The plugin was written for another version of the hooks."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(f"speaks plugin API {version}, this dlrl speaks {API_VERSION}")


def load_contributions(entry_point: EntryPoint) -> Contributions:
    """What the plugin adds. Raises WrongPlugin, OtherApiVersion, or whatever the plugin's code raises."""
    if not EntryPoint.pattern.match(entry_point.value):
        raise WrongPlugin(f"its target '{entry_point.value}' is not 'module' or 'module:object'")
    plugin = entry_point.load()
    _check_api_version("DLRL_API_VERSION", getattr(plugin, "DLRL_API_VERSION", API_VERSION_WHEN_UNSAID))
    manager = _register(plugin)
    return Contributions(
        frameworks=_frameworks(manager),
        functions={hook: _functions(manager, hook, several) for hook, (_, several) in KINDS.items()},
    )


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
    for returned in _results(manager, "dlrl_frameworks"):
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
            if not callable(function):
                raise WrongPlugin(f"{hook} returned {_kind(function)} for '{name}'; it must be callable")
            functions[name] = function
    return functions


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class '{value.__name__}'"
    return "None" if value is None else f"a value of type '{type(value).__name__}'"
