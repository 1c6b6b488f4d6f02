"""Whatever the store suffers between whatever commits: in the end it holds what it would hold had all been well."""

from __future__ import annotations

from typing import Any

import pytest
from checks import wait_until
from context_samples import job_record, workload_record
from failing_store_stand_in import FAULTS, FailingStoreStandIn
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlrl_core.context import Change, JobContext, OutageLimits
from dlrl_core.errors import StoreError

PATIENT = OutageLimits(patience_s=30, first_pause_s=0.0005, longest_pause_s=0.001)
HASTY = OutageLimits(patience_s=0.005, first_pause_s=0.0005, longest_pause_s=0.001)
OUR_WORDS = ("store_lost", "store_back", "store_rewound")
RECORD = job_record(submitted_at=1.0, state_since=1.0)
WORKLOADS = [workload_record(rank=rank, since=1.0) for rank in range(3)]

ACTIONS = st.sampled_from(["note", "progress", "progress and note", "workload", "remove", "job"])
WAYS = st.sampled_from(["open", "as it was", "as it was", "cut", "long"])
STEPS = st.lists(st.tuples(ACTIONS, WAYS, st.lists(st.sampled_from(FAULTS), max_size=4)), max_size=15)
Steps = list[tuple[str, str, list[str]]]


def act(change: Change, action: str, number: int) -> None:
    """One change, the same each time it is made with the same number."""
    if action == "note":
        change.event("note", f"note {number}")
    elif action.startswith("progress"):
        change.progress(step=number, updated_at=float(number))
        if action.endswith("note"):
            change.event("note", f"progress {number}")
    elif action == "workload":
        change.workload("actor-0", detail=f"detail {number}")
        change.event("note", f"workload {number}")
    elif action == "remove":
        change.remove_workload("actor-1")
        change.add_workload(workload_record(rank=1, incarnation=number, since=1.0))
    else:
        change.job(master_incarnation=number, why=f"why {number}")


def run(steps: Steps, *, is_faulty: bool) -> tuple[FailingStoreStandIn, JobContext]:
    store = FailingStoreStandIn()
    context = JobContext.create(store, RECORD, WORKLOADS, limits=HASTY if is_faulty else PATIENT)
    for number, (action, way, faults) in enumerate(steps, 1):
        if is_faulty:
            store.faults.extend(faults)
            if way != "as it was":
                store.make_way(way)
        with context.change() as change:
            act(change, action, number)
    store.make_way("open")
    return store, context


def content(store: FailingStoreStandIn) -> tuple[Any, list[str]]:
    stored = store.load(RECORD.name)
    assert stored is not None
    events = JobContext.load(store, RECORD.name).journal(0)
    assert [event.seq for event in events] == list(range(1, stored.last_seq + 1))
    return stored.documents, [event.message for event in events if event.kind not in OUR_WORDS]


@given(steps=STEPS)
@example(steps=[("progress", "long", []), ("progress", "as it was", [])])  # not to be merged: the first is on its way
@example(steps=[("progress", "cut", []), ("progress", "as it was", []), ("progress and note", "as it was", [])])
@settings(max_examples=100, deadline=None)
def test_outages_leave_no_trace_but_their_own_words(steps: Steps) -> None:
    quiet, _ = run(steps, is_faulty=False)
    store, context = run(steps, is_faulty=True)
    context.close(timeout_s=30)

    assert content(store) == content(quiet)
    stored = store.load(RECORD.name)
    assert stored is not None
    assert (context.version, context.last_seq) == (stored.version, stored.last_seq)
    assert not context.degraded
    assert bool(store.faults_suffered) == any(faults for _, _, faults in steps)


@given(steps=STEPS, others=st.integers(1, 4), is_forgetful=st.booleans())
@settings(max_examples=40, deadline=None)
def test_what_somebody_else_wrote_meanwhile_is_the_last_word(steps: Steps, others: int, is_forgetful: bool) -> None:
    store, context = run(steps, is_faulty=False)
    context.fail_for(3600)
    for number in range(3):
        with context.change() as change:
            change.event("note", f"old {number}")
    store.faults.extend(["forgets"] if is_forgetful else [])
    newer = JobContext.load(store, RECORD.name, limits=PATIENT)
    for number in range(others):
        try:
            with newer.change() as change:
                change.event("note", f"new {number}")
        except StoreError:  # what it was based on was forgotten
            newer = JobContext.load(store, RECORD.name, limits=PATIENT)
            with newer.change() as change:
                change.event("note", f"new {number}")
    before = content(store)
    context.fail_for(0)
    wait_until(lambda: "somebody else wrote" in (context.degraded or ""), "the old one is refused", pause_s=0.002)

    with pytest.raises(StoreError, match="somebody else wrote"), context.change() as change:
        change.event("note", "late")
    assert content(store) == before
    assert before[1][-others:] == [f"new {number}" for number in range(others)]
