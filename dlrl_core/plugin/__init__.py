"""What others add to dlrl: frameworks, distribution policies and stores, found through entry points."""

from dlrl_core.plugin.contract import (
    API_VERSION,
    ConfigKind,
    ConfigSource,
    FrameworkAdapter,
    FrameworkDefaults,
    RoleDefaults,
)
from dlrl_core.plugin.hookspecs import hookimpl, hookspec
from dlrl_core.plugin.host import PluginHost, plugin_host, reset_plugin_host
from dlrl_core.plugin.record import PluginRecord, PluginStatus

__all__ = [
    "API_VERSION",
    "ConfigKind",
    "ConfigSource",
    "FrameworkAdapter",
    "FrameworkDefaults",
    "PluginHost",
    "PluginRecord",
    "PluginStatus",
    "RoleDefaults",
    "hookimpl",
    "hookspec",
    "plugin_host",
    "reset_plugin_host",
]
