"""Errors of plugins: what the code of one raises becomes a PluginError with the plugin's name and the place."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dlrl_core.errors import DlrlError, PluginError, RemoteCause
from dlrl_core.plugin.contract import FrameworkAdapter
from dlrl_core.plugin.loading import PluginRecord, described

_METHODS = [name for name, value in vars(FrameworkAdapter).items() if callable(value) and not name.startswith("_")]


@contextmanager
def blamed(plugin: PluginRecord, what: str, *, but: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """A context: an exception of the plugin's code in the block becomes a PluginError, whose `cause` it is.

    Errors of dlrl, which plugins raise on purpose, KeyboardInterrupt and those of `but` pass.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, (DlrlError, *but)):
            raise
        failed = f"{plugin.label} failed in {what} at {_place(error, plugin.target.partition(':')[0])}"
        raised = PluginError(f"{failed}: {described(error).partition(chr(10))[0]}")
        raised.cause = RemoteCause.of(error)
        raise raised from error


def blaming(function: Callable[..., Any], plugin: PluginRecord, what: str) -> Callable[..., Any]:
    """The function of a plugin with its errors `blamed`; if it returns an iterator, those of the iteration too."""

    def items(iterator: Iterator[Any]) -> Iterator[Any]:
        with blamed(plugin, what):
            yield from iterator

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with blamed(plugin, what):
            returned = function(*args, **kwargs)
        return items(returned) if isinstance(returned, Iterator) else returned

    return call


def blame_adapter(adapter: FrameworkAdapter, plugin: PluginRecord) -> None:
    """Have the errors of this adapter's methods `blamed`."""
    for name in _METHODS:
        method = functools.partial(_call, adapter, name)
        setattr(adapter, name, blaming(method, plugin, f"'{name}' of framework '{adapter.name}'"))


def _call(adapter: FrameworkAdapter, method: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(type(adapter), method)(adapter, *args, **kwargs)


def _place(error: BaseException, module: str) -> str:
    """File and line of the innermost frame in the plugin's own package, else of the innermost of all."""
    package = module.partition(".")[0]
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [one for one in frames if str(one[0].f_globals.get("__name__")).partition(".")[0] == package]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}"
