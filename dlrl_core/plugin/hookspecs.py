"""The hooks of dlrl: what a plugin can add, and what each function must return.

A plugin is a module, or an object, named by an entry point of the group `dlrl`. It marks the hooks it
implements with `hookimpl`. Each hook is called once in each process that looks for plugins, so a plugin's
module is cheap to import and a hook only returns what is already there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pluggy

from dlrl_core.plugin.contract import FrameworkAdapter

if TYPE_CHECKING:
    from dlrl_core.plugin.verdict import Verdict
    from dlrl_core.spec import JobSpec

PROJECT = "dlrl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Policy: TypeAlias = "Callable[[JobSpec], JobSpec]"
StoreOpener: TypeAlias = Callable[[str], Any]
Command: TypeAlias = Callable[..., None]
Detector: TypeAlias = Callable[[Any], "Iterable[Any]"]
EventSink: TypeAlias = "Callable[[str, Mapping[str, Any]], None]"
DoctorCheck: TypeAlias = "Callable[[], Iterable[Verdict]]"
PlanFormat: TypeAlias = Callable[[Any], str]

KINDS = {
    "dlrl_policies": ("policy", "policies"),
    "dlrl_stores": ("store scheme", "store openers"),
    "dlrl_commands": ("command", "commands"),
    "dlrl_detectors": ("detector", "detectors"),
    "dlrl_event_sinks": ("event sink", "event sinks"),
    "dlrl_doctor_checks": ("doctor check", "doctor checks"),
    "dlrl_plan_formats": ("plan format", "plan formats"),
}
"""Of each hook that returns functions by name: what one of them is called in a sentence, and several."""


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


@hookspec
def dlrl_commands() -> dict[str, Command]:
    """Commands of `dlrl` by name: functions with typer's annotations, whose docstring is the help text."""
    raise NotImplementedError


@hookspec
def dlrl_detectors() -> dict[str, Detector]:
    """Detectors by name: pure functions from a JobLook to the findings in it. The Master calls them regularly.

    Typed `Any` because both classes live in `dlrl_core.failover`, a room below this one.
    """
    raise NotImplementedError


@hookspec
def dlrl_event_sinks() -> dict[str, EventSink]:
    """Event sinks by name: functions that get the job's name and each journal event, as plain values, once.

    The Master calls them, in a thread of their own and in order; what one raises is logged once.
    """
    raise NotImplementedError


@hookspec
def dlrl_doctor_checks() -> dict[str, DoctorCheck]:
    """Checks of `dlrl doctor` by name: functions that yield a Verdict for each thing they looked at."""
    raise NotImplementedError


@hookspec
def dlrl_plan_formats() -> dict[str, PlanFormat]:
    """Formats of a plan by name, such as 'svg': functions that take an ExecutionPlan and return a document."""
    raise NotImplementedError
