"""Errors of plugins: what the code of one raises becomes a PluginError with the plugin's name and the place."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from dlrl_core.errors import DlrlError, PluginError, RemoteCause
from dlrl_core.plugin.contract import FrameworkAdapter
from dlrl_core.plugin.loading import PluginRecord, described

Passing: TypeAlias = tuple[type[BaseException], ...]
_METHODS = [name for name, value in vars(FrameworkAdapter).items() if callable(value) and not name.startswith("_")]


def blaming(function: Callable[..., Any], plugin: PluginRecord, what: str, but: Passing = ()) -> Callable[..., Any]:
    """The plugin's function; what it raises, or its iterator later, is a PluginError that has it as its `cause`.

    Errors of dlrl, which plugins raise on purpose, KeyboardInterrupt and those of `but` pass.
    """

    def items(iterator: Iterator[Any]) -> Iterator[Any]:
        with _blamed(plugin, what, but):
            yield from iterator

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _blamed(plugin, what, but):
            returned = function(*args, **kwargs)
        return items(returned) if isinstance(returned, Iterator) else returned

    return call


def blame_adapter(adapter: FrameworkAdapter, plugin: PluginRecord) -> None:
    """The same for all methods of the adapter."""
    for name in _METHODS:
        method = functools.partial(_call, adapter, name)
        setattr(adapter, name, blaming(method, plugin, f"'{name}' of framework '{adapter.name}'"))


def _call(adapter: FrameworkAdapter, method: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(type(adapter), method)(adapter, *args, **kwargs)


@contextmanager
def _blamed(plugin: PluginRecord, what: str, but: Passing) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, (DlrlError, *but)):
            raise
        sentence = f"{plugin.label} failed in {what} at {_place(error, plugin)}: {described(error)}"
        raised = PluginError(sentence.partition("\n")[0])
        raised.cause = RemoteCause.of(error)
        raise raised from error


def _place(error: BaseException, plugin: PluginRecord) -> str:
    """File and line of the innermost frame in the plugin's own package, else of the innermost of all."""
    frames = list(traceback.walk_tb(error.__traceback__))
    package = plugin.target.partition(":")[0].partition(".")[0]
    own = [one for one in frames if str(one[0].f_globals.get("__name__")).partition(".")[0] == package]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}"
