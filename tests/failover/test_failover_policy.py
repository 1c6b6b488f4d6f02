"""The escalating policy: how much restarts after what, and when enough is enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrl_core.context import FindingKind, Incident, Reason
from dlrl_core.errors import ErrorIdentity
from dlrl_core.failover import Finding, Situation
from dlrl_core.failover import decide as decided
from dlrl_core.spec.job_spec import RestartBudget
from dlrl_core.spec.role_values import FailoverScope

DECLARED = {
    "actor": FailoverScope.ROLE,
    "rollout": FailoverScope.WORKLOAD,
    "critic": FailoverScope.SUBGRAPH,
    "reward": FailoverScope.JOB,
    "reference": FailoverScope.STOP,
}
NOW = 10_000.0


ERROR = ErrorIdentity(type_name="ValueError", role="actor", method="update")


def finding(subject: str, kind: FindingKind = FindingKind.PROCESS_DIED) -> Finding:
    return Finding(kind=kind, subject=subject, message=f"{subject} is in trouble", step=7, error=ERROR)


def incident(subject: str, scope: str, ago: float, kind: str = "process_died", **more) -> Incident:
    fields = {
        "number": 1,
        "at": NOW - ago,
        "steady_at": NOW - ago,
        "kind": kind,
        "subject": subject,
        "message": "it happened",
        "scope": scope,
    }
    return Incident(**fields, reason="declared", explanation="so it is", **more)


def situation(*past: tuple[str, str, float], **more) -> Situation:
    """`past`: subject, scope and how many seconds ago."""
    defaults = {"declared": DECLARED, "budget": RestartBudget(), "now": NOW, "has_commit": True}
    return Situation(**{**defaults, "incidents": [incident(*one) for one in past], **more})


def decide(subject: str, seen: Situation, kind: FindingKind = FindingKind.PROCESS_DIED):
    return decided(finding(subject, kind), seen)


@pytest.mark.parametrize(
    ("subject", "scope"),
    [
        ("rollout-1", "workload"),
        ("actor-0", "role"),
        ("critic-0", "subgraph"),
        ("reward-0", "job"),
        ("reference-0", "stop"),
        ("trainer", "role"),
    ],
)
def test_the_first_death_restarts_what_the_role_declares(subject, scope):
    assert decide(subject, situation()).scope == scope


@pytest.mark.parametrize("subject", ["actor-0", "critic-0", "trainer"])
def test_without_a_commit_there_is_nothing_to_go_back_to_but_the_start(subject):
    decision = decide(subject, situation(has_commit=False))
    assert decision.scope == "job"
    assert decision.reason is Reason.NO_COMMIT
    assert "nothing was committed yet" in decision.explanation


def test_a_workload_with_state_goes_back_to_a_commit_too():
    assert decide("rollout-0", situation(has_commit=False)).scope == "workload"
    assert decide("rollout-0", situation(has_commit=False, stateful=frozenset({"rollout"}))).scope == "job"
    assert decide("rollout-0", situation(stateful=frozenset({"rollout"}))).scope == "workload"


def test_a_call_that_must_not_be_made_again_takes_at_least_the_role():
    assert decide("rollout-0", situation(), FindingKind.CALL_LOST).scope == "role"
    assert decide("reward-0", situation(), FindingKind.CALL_LOST).scope == "job"
    assert decide("rollout-0", situation(has_commit=False), FindingKind.CALL_LOST).scope == "job"


def test_what_dies_too_often_takes_more_with_it_and_at_last_stops_the_job():
    often = [("rollout-1", "workload", 10.0)] * 3
    assert decide("rollout-1", situation(*often)).scope == "role"
    assert decide("rollout-0", situation(*often)).scope == "workload"
    more = [*often, *[("rollout-1", "role", 5.0)] * 3]
    assert decide("rollout-1", situation(*more)).scope == "job"
    most = [*more, *[("rollout-1", "job", 1.0)] * 3]
    decision = decide("rollout-1", situation(*most))
    assert decision.scope == "stop"
    assert decision.reason is Reason.BUDGET_SPENT
    assert decision.explanation == "3 restarts of scope 'job' within 3600 s are all that is allowed"


def test_what_lies_before_the_window_is_forgotten():
    assert decide("rollout-1", situation(*[("rollout-1", "workload", 4000.0)] * 9)).scope == "workload"


def test_a_budget_of_nothing_stops_at_once():
    assert decide("rollout-0", situation(budget=RestartBudget(workload=0, role=0, job=0))).scope == "stop"


def test_each_further_restart_of_the_same_process_waits_twice_as_long():
    waits = [decide("rollout-1", situation(*[("rollout-1", "workload", 1.0)] * n)).wait_s for n in range(4)]
    assert waits == [0.0, 1.0, 2.0, 4.0]


def raised_before(**changes) -> dict[str, list[Incident]]:
    fields = {"step": 7, "error": ERROR, **changes}
    return {"incidents": [incident("actor-0", "role", 10.0, "user_error", **fields)]}


@pytest.mark.parametrize(
    ("more", "scope", "reason"),
    [
        ({"has_commit": False}, "stop", Reason.ERROR_BEFORE_COMMIT),
        ({}, "role", Reason.FIRST_ERROR),
        (raised_before(), "stop", Reason.SAME_ERROR_AGAIN),
        (raised_before(step=6), "role", Reason.FIRST_ERROR),
        (raised_before(error=None), "role", Reason.FIRST_ERROR),
    ],
)
def test_an_error_of_user_code_is_given_one_more_chance_from_a_commit(more, scope, reason):
    decision = decide("actor-1", situation(**more), FindingKind.USER_ERROR)
    assert (str(decision.scope), decision.reason) == (scope, reason)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rollout-0", "actor-1", "trainer"]),
            st.sampled_from(list(FailoverScope)),
            st.floats(0, 7200),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_more_trouble_in_the_past_never_restarts_less(past, has_commit):
    scopes = list(FailoverScope)
    for subject in ("rollout-0", "actor-1", "trainer"):
        alone = decide(subject, situation(has_commit=has_commit)).scope
        burdened = decide(subject, situation(*past, has_commit=has_commit)).scope
        assert scopes.index(burdened) >= scopes.index(alone)
