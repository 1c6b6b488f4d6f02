"""What acme adds besides its framework: one use of each hook that returns functions by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from acme_rl.plugin import DEFAULTS
from dlrl_core.cli.app import AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_core.plan import ExecutionPlan
from dlrl_core.plan.shortage import Misfit
from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok

EVENTS: list[tuple[str, Mapping[str, Any]]] = []


def defaults(as_json: AsJson = False) -> None:
    """Print acme's own values, over which a config is laid."""
    with errors_shown(as_json):
        from dlrl_core.cli.output import print_json

        if as_json:
            print_json(DEFAULTS)
        else:
            print("\n".join(f"{key}={value}" for key, value in DEFAULTS.items()))


def no_findings(look: Any) -> Iterable[Any]:
    """A detector that never finds anything."""
    return ()


def keep_event(job: str, event: Mapping[str, Any]) -> None:
    """An event sink that keeps events in this process."""
    EVENTS.append((job, event))


def check_goal(request: DoctorRequest) -> Iterator[Verdict]:
    """A doctor check of what bandits need."""
    yield ok("acme goal", f"the best arm is {DEFAULTS['goal']}; cluster: {request.address}")


def csv_of(plan: ExecutionPlan) -> str:
    """A plan as lines of workload and node."""
    return "".join(f"{row['workload']},{row['node']}\n" for row in plan.rows())


def rent(misfit: Misfit) -> Iterator[str]:
    """A plan adviser for users of acme's cloud."""
    yield f"{misfit.problem.spec.node_num} rented nodes"
    raise RuntimeError("the cloud has no more")
