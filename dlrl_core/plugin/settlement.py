"""What becomes of each installed plugin: refused, clashing, broken, of another API version, or loaded."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dlrl_core.plugin.allow_list import VARIABLE, AllowList
from dlrl_core.plugin.contract import API_VERSION
from dlrl_core.plugin.discovery import InstalledPlugin
from dlrl_core.plugin.loading import Contributions, OtherApiVersion, WrongPlugin, load_contributions
from dlrl_core.plugin.record import PluginRecord, PluginStatus

_log = logging.getLogger("dlrl.plugin")


def settle(
    installed: Sequence[InstalledPlugin], allow_list: AllowList
) -> Iterator[tuple[PluginRecord, Contributions | None]]:
    """Each plugin's record, and what it adds if it loaded. A refused or clashing one is never imported."""
    rivals: dict[str, list[InstalledPlugin]] = defaultdict(list)
    for plugin in installed:
        if allow_list.admits(plugin):
            rivals[plugin.name].append(plugin)
    for plugin in installed:
        if not allow_list.admits(plugin):
            yield plugin.record(PluginStatus.NOT_ALLOWED, allow_list.refusal(plugin)), None
        elif len(rivals[plugin.name]) > 1:
            yield plugin.record(PluginStatus.CLASH, _clash(rivals[plugin.name])), None
        else:
            yield load(plugin)


def _clash(rivals: Sequence[InstalledPlugin]) -> str:
    owners = " and ".join(f"{plugin.distribution_label} ({plugin.target})" for plugin in rivals)
    return (
        f"plugin '{rivals[0].name}' is registered by {owners}, so neither is loaded; uninstall one, "
        f"or set {VARIABLE} to the plugins you want, with '{rivals[0].qualified_name}' to choose that one"
    )


def load(plugin: InstalledPlugin) -> tuple[PluginRecord, Contributions | None]:
    """The plugin's record, and what it adds unless it is broken. Raises nothing but KeyboardInterrupt."""
    try:
        added = load_contributions(plugin.entry_point)
    except KeyboardInterrupt:
        raise
    except OtherApiVersion as error:
        outdated = "dlrl" if error.version > API_VERSION else plugin.distribution or "it"
        return plugin.record(PluginStatus.API_MISMATCH, f"{plugin.label} {error}; update {outdated}"), None
    except WrongPlugin as error:
        return plugin.record(PluginStatus.BROKEN, f"{_is_broken(plugin)}: {error}"), None
    except BaseException as error:  # noqa: BLE001 - code of others, which may even exit; the other plugins load on
        _log.debug("traceback of %s:", plugin.label, exc_info=error)
        return plugin.record(PluginStatus.BROKEN, f"{_is_broken(plugin)}: {_describe(error)}"), None
    return plugin.record(PluginStatus.LOADED), added


def _is_broken(plugin: InstalledPlugin) -> str:
    return f"{plugin.label} is broken; update or uninstall {plugin.distribution or 'it'}"


def _describe(error: BaseException) -> str:
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - an exception of others that can't even be printed
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
