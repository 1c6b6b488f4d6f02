"""States of a job, and reports of workloads."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import pytest
from context_samples import run_python, survives_pickle

from dlrl_core.context import JobState, ProcessReport, WorkloadState, check_transition
from dlrl_core.errors import ContextError

ALLOWED = {
    "submitted": "reserving stopping failed",
    "reserving": "starting stopping failed",
    "starting": "reserving running stopping failed",
    "running": "reserving starting stopping finished failed",
    "stopping": "stopped finished failed",
    "finished": "",
    "failed": "",
    "stopped": "",
}
REPORT = ProcessReport(
    name="actor-3",
    run_id="r",
    incarnation=1,
    address="10.0.0.1",
    actor_id="x",
    state=WorkloadState.READY,
    call="update",
    call_s=100.0,
    memory_bytes=1 << 30,
    node_id="n1",
    pid=4711,
    sent_at=142.5,
)


@pytest.mark.parametrize(("old", "new"), [*itertools.product(JobState, JobState)])
def test_only_listed_transitions_are_allowed(old: JobState, new: JobState) -> None:
    if new == old or new in ALLOWED[old].split():
        check_transition(old, new)
        return
    with pytest.raises(ContextError, match=f"'{old}'.*'{new}'") as caught:
        check_transition(old, new)
    assert survives_pickle(caught.value)


def test_final_states_are_those_that_nothing_follows() -> None:
    assert {state for state in JobState if state.is_final} == {"finished", "failed", "stopped"}


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    reached, new = set[str](), {"submitted"}
    while new:
        reached |= new
        new = {after for state in new for after in ALLOWED[state].split()} - reached

    assert reached == set(JobState)
    assert all("failed" in ALLOWED[state].split() for state in JobState if not state.is_final)


def test_refused_transition_says_what_is_possible() -> None:
    with pytest.raises(ContextError, match="it may become 'reserving', 'stopping', 'failed'"):
        check_transition(JobState.SUBMITTED, JobState.RUNNING)


def test_report_crosses_processes() -> None:
    assert pickle.loads(pickle.dumps(REPORT)) == REPORT


def test_report_is_frozen_and_has_no_other_attributes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.pid = 4  # type: ignore[misc]
    assert not hasattr(REPORT, "__dict__")


def test_importing_the_report_brings_in_neither_pydantic_nor_a_store_nor_ray() -> None:
    """Workloads import it at their start, thousands of them."""
    loaded = run_python(
        """
        import sys
        from dlrl_core.context.process_report import ProcessReport
        from dlrl_core.context import WorkloadState
        print(*sys.modules)
        """
    ).split()

    assert not {"pydantic", "sqlite3", "_sqlite3", "redis", "ray", "torch", "omegaconf"}.intersection(loaded)


def test_every_public_name_can_be_loaded() -> None:
    import dlrl_core.context as room

    assert all(getattr(room, name) is not None for name in room.__all__)
    assert set(room.__all__) <= set(dir(room))
    with pytest.raises(AttributeError, match=r"'dlrl_core\.context' has no attribute 'Info'"):
        _ = room.Info
