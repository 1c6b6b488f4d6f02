"""What others add to dlrl, found through entry points; `hookspecs` lists the hooks."""

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names
from dlrl_core.plugin.contract import API_VERSION, ConfigKind, ConfigSource, FrameworkAdapter
from dlrl_core.plugin.hookspecs import hookimpl, hookspec
from dlrl_core.plugin.host import EventSinks, PluginHost, plugin_host, reset_plugin_host
from dlrl_core.plugin.loading import PluginRecord, PluginStatus

if TYPE_CHECKING:
    from dlrl_core.spec.job_spec import FrameworkDefaults, RoleDefaults

__all__ = [
    "API_VERSION",
    "ConfigKind",
    "ConfigSource",
    "EventSinks",
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

# The processes of a job load plugins too, and need no pydantic.
__getattr__ = lazy_names(__name__, dict.fromkeys(("FrameworkDefaults", "RoleDefaults"), "dlrl_core.spec.job_spec"))
