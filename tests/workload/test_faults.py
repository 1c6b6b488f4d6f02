"""A process takes a fault only if its job allows chaos, and lets it happen at the call that it names."""

from __future__ import annotations

import pickle

import pytest

from dlrl_chaos.fault import Fault, FaultKind
from dlrl_core.errors import ChaosNotAllowedError, DlrlError
from dlrl_core.workload.fault import FaultInjector

SLOW = {"kind": FaultKind.SLOW, "seconds": 0.0}


def calls_until_it_comes(fault: Fault, *calls: str) -> list[str]:
    """The calls of an injector before the fault has come, and the one that it came with."""
    injector, made = FaultInjector(is_allowed=True, owner="it"), []
    injector.add(pickle.loads(pickle.dumps(fault)))
    for call in calls:
        made.append(call)
        injector.before_call(call)
        if not injector:
            return made
    return []


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        (Fault(**SLOW), ["update"]),
        (Fault(**SLOW, method="generate"), ["update", "generate"]),
        (Fault(**SLOW, method="generate", nth=2), ["update", "generate", "update", "generate"]),
        (Fault(**SLOW, method="other"), []),
    ],
)
def test_a_fault_comes_with_its_call(fault, calls):
    assert calls_until_it_comes(fault, "update", "generate", "update", "generate", "update") == calls


def test_calls_before_a_fault_was_asked_for_do_not_count():
    injector = FaultInjector(is_allowed=True, owner="it")
    injector.add(Fault(**SLOW, method="other"))
    injector.before_call("generate")
    injector.add(Fault(**SLOW, method="generate", nth=2))
    injector.before_call("generate")
    injector.before_call("other")

    assert injector
    injector.before_call("generate")
    assert not injector


def test_a_job_that_does_not_allow_chaos_takes_no_fault():
    injector = FaultInjector(is_allowed=False, owner="workload 'actor-0'")

    with pytest.raises(ChaosNotAllowedError, match="workload 'actor-0' belongs to a job that does not allow chaos"):
        injector.add(Fault(kind=FaultKind.KILL))


@pytest.mark.parametrize("fault", [Fault(kind=FaultKind.STORE), Fault(**SLOW), Fault(kind=FaultKind.KILL, method="x")])
def test_a_process_refuses_a_fault_that_it_can_not_have(fault):
    injector = FaultInjector(is_allowed=True, owner="the trainer", has_calls=False)

    with pytest.raises(DlrlError, match=f"the trainer can't have the fault '{fault.kind}' this way"):
        injector.add(fault)
