"""What others add to dlrl, found through entry points; `hookspecs` lists the hooks."""

from dlrl_core.plugin.contract import (
    API_VERSION,
    ConfigKind,
    ConfigSource,
    FrameworkAdapter,
    FrameworkDefaults,
    RoleDefaults,
)
from dlrl_core.plugin.discovery import PluginRecord, PluginStatus
from dlrl_core.plugin.hookspecs import hookimpl, hookspec
from dlrl_core.plugin.host import PluginHost, plugin_host, reset_plugin_host

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
