"""The hooks of dlrl: what a plugin can add, and what each function must return.

A plugin is a module, or an object, named by an entry point of the group `dlrl`. It marks the hooks it
implements with `hookimpl`. Each hook is called once in each process that looks for plugins, workloads of a job
with a framework among them: a plugin's module imports nothing heavy, and a hook only returns what is already there.

A hook that returns functions by name may give each one as a callable, or as its import path "module:function".
A path is imported when the function is first used; one that can't be imported is reported with its plugin's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pluggy

from dlrl_core.plugin.contract import FrameworkAdapter

if TYPE_CHECKING:
    from dlrl_core.plugin.verdict import DoctorRequest, Verdict
    from dlrl_core.spec import JobSpec

PROJECT = "dlrl"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

ImportPath: TypeAlias = str
"""A function as "module:function", imported when it is first used."""

Policy: TypeAlias = "Callable[[JobSpec], JobSpec]"
StoreOpener: TypeAlias = Callable[[str], Any]
ClusterStarter: TypeAlias = Callable[[], Any]
Command: TypeAlias = Callable[..., None]
StateKeeperClass: TypeAlias = type
Detector: TypeAlias = Callable[[Any], "Iterable[Any]"]
EventSink: TypeAlias = "Callable[[str, Mapping[str, Any]], None]"
DoctorCheck: TypeAlias = "Callable[[DoctorRequest], Iterable[Verdict]]"
PlanFormat: TypeAlias = Callable[[Any], str]
PlanAdviser: TypeAlias = Callable[[Any], "Iterable[str]"]


class Kind(NamedTuple):
    """What a hook registers by name."""

    one: str
    """One of them in a sentence."""
    several: str
    of_dlrls_plugins: tuple[str, ...] = ()
    """Names that only plugins that come with dlrl can take; another one that registers such a name is reported."""


KINDS = {
    "dlrl_frameworks": Kind("framework", "frameworks"),
    "dlrl_policies": Kind("policy", "policies"),
    "dlrl_stores": Kind("store scheme", "store openers", of_dlrls_plugins=("sqlite",)),
    "dlrl_state_keepers": Kind("state keeper", "state keepers"),
    "dlrl_clusters": Kind("cluster", "clusters"),
    "dlrl_commands": Kind(
        "command", "commands", ("run", "stop", "plan", "status", "why", "doctor", "frameworks", "chaos")
    ),
    "dlrl_detectors": Kind("detector", "detectors"),
    "dlrl_event_sinks": Kind("event sink", "event sinks"),
    "dlrl_doctor_checks": Kind("doctor check", "doctor checks"),
    "dlrl_plan_formats": Kind("plan format", "plan formats"),
    "dlrl_plan_advisers": Kind("plan adviser", "plan advisers"),
}
"""Each hook. All but the first return functions by name."""


@hookspec
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    """Frameworks, as classes. Each has a `name` that no other plugin registers."""
    raise NotImplementedError


@hookspec
def dlrl_policies() -> dict[str, Policy | ImportPath]:
    """Distribution policies by name: functions that take a spec and return one with its roles placed."""
    raise NotImplementedError


@hookspec
def dlrl_stores() -> dict[str, StoreOpener | ImportPath]:
    """Stores by URL scheme: functions that take the whole URL and return an open store.

    The result is typed `Any` because the store's class lives in `dlrl_core.context`, a room below this one.
    """
    raise NotImplementedError


@hookspec
def dlrl_state_keepers() -> dict[str, StateKeeperClass | ImportPath]:
    """Keepers of committed state by name: subclasses of StateKeeper. `commits(keeper=...)` chooses one.

    Typed `Any` because StateKeeper lives in `dlrl_core.workload`, a room below this one.
    """
    raise NotImplementedError


@hookspec
def dlrl_clusters() -> dict[str, ClusterStarter | ImportPath]:
    """Clusters that can be started for a job whose user names none, by name: functions that return a JobCluster.

    `DLRL_CLUSTER` chooses one; 'local' is the default. Typed `Any` because JobCluster lives in `dlrl_core.scheduler`.
    """
    raise NotImplementedError


@hookspec
def dlrl_commands() -> dict[str, Command | ImportPath]:
    """Commands of `dlrl` by name: functions with typer's annotations, whose docstring is the help text.

    All are imported for `dlrl --help`, else only the one that is called.
    """
    raise NotImplementedError


@hookspec
def dlrl_detectors() -> dict[str, Detector | ImportPath]:
    """Detectors by name: pure functions from a JobLook to the WorkloadHangs in it. The Master calls them regularly.

    Typed `Any` because both classes live in `dlrl_core.failover`, a room below this one.
    """
    raise NotImplementedError


@hookspec
def dlrl_event_sinks() -> dict[str, EventSink | ImportPath]:
    """Event sinks by name: functions that get the job's name and each journal event, as plain values, once.

    The Master calls them, in a thread of their own and in order; what one raises is logged once. Events about the store
    itself, and `submitted`, are in the journal alone.
    """
    raise NotImplementedError


@hookspec
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    """Checks of `dlrl doctor` by name: functions that yield a Verdict for each thing they looked at.

    A check with the name of a framework replaces the one that `dlrl doctor` makes of that framework's install.
    """
    raise NotImplementedError


@hookspec
def dlrl_plan_formats() -> dict[str, PlanFormat | ImportPath]:
    """Formats of a plan by name, such as 'svg': functions that take an ExecutionPlan and return a document."""
    raise NotImplementedError


@hookspec
def dlrl_plan_advisers() -> dict[str, PlanAdviser | ImportPath]:
    """Plan advisers by name: functions that take a Misfit and yield changes with which the job would fit.

    A change is the end of "it would fit with ...". The first two are shown, so an adviser yields the best first.
    Typed `Any` because Misfit lives in `dlrl_core.plan`, a room below this one.
    """
    raise NotImplementedError
