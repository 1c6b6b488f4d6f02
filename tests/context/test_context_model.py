"""Whatever sequence of changes, some of them aborted: what is loaded again is what was in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from context_samples import job_record, workload_record
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dlrl_core.context import Change, JobContext, JobState, WorkloadState, open_store
from dlrl_core.errors import ContextError, StoreError
from dlrl_core.roles import RoleType

RANKS = st.integers(0, 3)
NAMES = RANKS.map(RoleType.ACTOR.workload_name)
TEXT = st.text(max_size=8)
ACTIONS = st.one_of(
    st.tuples(st.just("job"), st.fixed_dictionaries({"state": st.sampled_from(JobState), "why": TEXT | st.none()})),
    st.tuples(st.just("job"), st.fixed_dictionaries({"plan_json": st.sampled_from(["{}", "[1]", None])})),
    st.tuples(st.just("progress"), st.fixed_dictionaries({"step": st.integers(0, 9), "updated_at": st.floats(0, 9)})),
    st.tuples(
        st.just("progress"),
        st.fixed_dictionaries({"metrics": st.dictionaries(TEXT, st.floats(-1, 1), max_size=2)}),
    ),
    st.tuples(st.just("trainer"), st.fixed_dictionaries({"phase": TEXT})),
    st.tuples(st.just("workload"), st.fixed_dictionaries({"name": NAMES, "state": st.sampled_from(WorkloadState)})),
    st.tuples(st.just("workload"), st.fixed_dictionaries({"name": NAMES, "detail": TEXT})),
    st.tuples(
        st.just("add_workload"),
        st.fixed_dictionaries({"record": RANKS.map(lambda rank: workload_record(rank=rank))}),
    ),
    st.tuples(st.just("remove_workload"), st.fixed_dictionaries({"name": NAMES})),
    st.tuples(
        st.just("event"),
        st.fixed_dictionaries({"kind": st.just("x"), "message": TEXT, "number": st.integers()}),
    ),
)


class Abort(Exception):
    pass


class OneJob(RuleBasedStateMachine):
    """Drives a real context on a real store, and remembers only the messages that were committed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.store = open_store(url)
        self.context = JobContext.create(self.store, job_record())
        self.messages = ["job 'my-ppo' was submitted"]

    @rule(actions=st.lists(ACTIONS, max_size=4), is_aborted=st.booleans())
    def change(self, actions: list[tuple[str, dict[str, Any]]], is_aborted: bool) -> None:
        before = (self.context.record, self.context.workloads, self.context.version)
        try:
            with self.context.change() as change:
                for method, arguments in actions:
                    getattr(change, method)(**arguments)
                expected = change.record
                if is_aborted:
                    raise Abort
        except (Abort, ContextError) as error:
            assert not isinstance(error, StoreError)
            assert (self.context.record, self.context.workloads, self.context.version) == before
        else:
            assert self.context.record == expected
            self.messages += [arguments["message"] for method, arguments in actions if method == "event"]

    @rule()
    def somebody_else_writes(self) -> None:
        with open_store(self.url) as other_store:
            other = JobContext.load(other_store, "my-ppo")
            with other.change() as change:
                self.note(change, "other")
        with pytest.raises(StoreError), self.context.change() as change:
            change.event("x", "lost")
        self.context = JobContext.load(self.store, "my-ppo")

    @rule()
    def the_master_restarts(self) -> None:
        self.store.close()
        self.store = open_store(self.url)
        self.context = JobContext.load(self.store, "my-ppo")
        with self.context.change() as change:
            change.job(master_incarnation=change.record.master_incarnation + 1)

    @precondition(lambda self: self.context.record.state.is_final)
    @rule()
    def the_name_is_used_again(self) -> None:
        self.context = JobContext.create(self.store, job_record())
        self.messages = [event.message for event in self.context.journal()]
        assert len(self.messages) == 1

    @invariant()
    def loaded_equals_memory(self) -> None:
        with open_store(self.url) as reader:
            loaded = JobContext.load(reader, "my-ppo")
            assert loaded.record == self.context.record
            assert list(loaded.workloads.items()) == list(self.context.workloads.items())
            assert (loaded.version, loaded.last_seq) == (self.context.version, self.context.last_seq)
            assert [event.message for event in loaded.journal()] == self.messages
            assert loaded.last_seq == loaded.record.journal_start + len(self.messages)

    def note(self, change: Change, message: str) -> None:
        change.event("x", message)
        self.messages.append(message)

    def teardown(self) -> None:
        self.store.close()


def test_what_is_loaded_is_what_was_in_memory(new_store_url: Callable[[], str]) -> None:
    few = settings(max_examples=20, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(lambda: OneJob(new_store_url()), settings=few)
