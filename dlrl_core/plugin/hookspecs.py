"""The hooks of dlrl: what a plugin can add, and what each function must return.

A plugin is a module, or an object, named by an entry point of the group `dlrl`. It marks the hooks it
implements with `hookimpl`. Each hook is called once in each process that looks for plugins, so a plugin's
module is cheap to import and a hook only returns what is already there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pluggy

from dlrl_core.plugin.contract import FrameworkAdapter

if TYPE_CHECKING:
    from dlrl_core.spec import JobSpec

PROJECT = "dlrl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Policy: TypeAlias = "Callable[[JobSpec], JobSpec]"
StoreOpener: TypeAlias = Callable[[str], Any]


@hookspec
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    """Frameworks, as classes. Each has a `name` that no other plugin registers."""
    raise NotImplementedError


@hookspec
def dlrl_policies() -> dict[str, Policy]:
    """Distribution policies by name: functions that take a spec and return one with its roles placed."""
    raise NotImplementedError


@hookspec
def dlrl_stores() -> dict[str, StoreOpener]:
    """Stores by URL scheme: functions that take the whole URL and return an open store.

    The result is typed `Any` because the store's class lives in `dlrl_core.context`, a room below this one.
    """
    raise NotImplementedError
