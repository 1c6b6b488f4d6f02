"""What a scope shall restart, and how that is compared with what was restarted. No Ray."""

from __future__ import annotations

import pytest

from dlrl_conformance.deaths import (
    Death,
    choose_deaths,
    expected_restarts,
    restart_problems,
    restarts_between,
)
from dlrl_conformance.watched_job import Look, WatchedJob
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec
from dlrl_core.spec.role_values import FailoverScope

EVERYBODY = ["master", "trainer", "actor-0", "actor-1", "rollout-0", "rollout-1", "reward-0"]
WORKLOADS = {name for name in EVERYBODY if "-" in name}
CLS = ClassRef(module="m", class_name="C")


@pytest.mark.parametrize(
    ("victim", "scope", "must", "may"),
    [
        ("rollout-1", "workload", {"rollout-1"}, {"rollout-1"}),
        ("actor-0", "role", {"actor-0", "actor-1"}, {"actor-0", "actor-1"}),
        ("actor-0", "subgraph", {"actor-0", "actor-1"}, WORKLOADS),
        ("reward-0", "job", {*WORKLOADS, "trainer"}, {*WORKLOADS, "trainer"}),
        ("reward-0", "stop", set(), set()),
        ("trainer", None, {"trainer"}, {"trainer"}),
        ("master", None, {"master"}, {"master"}),
    ],
)
def test_a_scope_says_who_must_and_who_may_be_restarted(victim, scope, must, may):
    expected = expected_restarts(Death(victim=victim, scope=scope and FailoverScope(scope)), EVERYBODY)
    assert (expected.must, expected.may) == (must, may)


def test_who_has_another_process_was_restarted():
    before = {"master": (1, None), "trainer": (0, 10), "actor-0": (0, 11), "actor-1": (0, 12), "rollout-0": (0, 13)}
    after = {"master": (1, None), "trainer": (0, 10), "actor-0": (1, 21), "actor-1": (2, 22), "rollout-0": (0, 23)}
    assert restarts_between(before, after) == {"actor-0": 1, "actor-1": 2, "rollout-0": 1}


@pytest.mark.parametrize(
    ("scope", "restarted", "problems"),
    [
        ("role", {"actor-0": 1, "actor-1": 1}, []),
        ("subgraph", {"actor-0": 1, "actor-1": 1, "reward-0": 1}, []),
        (
            "workload",
            {"actor-0": 1, "actor-1": 1},
            ["the death of 'actor-0' (scope 'workload') restarted 'actor-0', 'actor-1'; expected: 'actor-0'"],
        ),
        ("role", {}, ["the death of 'actor-0' (scope 'role') restarted nobody; expected: 'actor-0', 'actor-1'"]),
        (
            "workload",
            {"actor-0": 2},
            ["after the death of 'actor-0' (scope 'workload') were restarted more than once: 'actor-0' 2 times"],
        ),
    ],
)
def test_what_was_restarted_is_exactly_what_the_scope_says(scope, restarted, problems):
    death = Death(victim="actor-0", scope=FailoverScope(scope))
    assert restart_problems(death, expected_restarts(death, EVERYBODY), restarted) == problems


def spec() -> JobSpec:
    return JobSpec(
        roles=(
            RoleSpec(role="actor", cls=CLS, total=4, failover="role"),
            RoleSpec(role="critic", cls=CLS, failover="stop"),
            RoleSpec(role="rollout", cls=CLS, total=8),
        )
    )


@pytest.mark.parametrize("seed", range(20))
def test_one_of_each_role_dies_and_the_trainer_and_the_master(seed):
    """A role that declares 'stop' is left alone; one that declares nothing takes the job with it."""
    deaths = choose_deaths(spec(), seed)
    assert deaths == choose_deaths(spec(), seed)
    scopes = {death.victim.partition("-")[0]: death.scope for death in deaths}
    assert scopes == {"actor": "role", "rollout": "job", "trainer": None, "master": None}
    assert {death.victim for death in deaths} <= {f"actor-{i}" for i in range(4)} | {
        "trainer",
        "master",
        *(f"rollout-{i}" for i in range(8)),
    }


class StandInHandle:
    """Tells what a handle would, of a job that loses a commit: a sound dlrl has none."""

    def __init__(self, *told: tuple[int, int]) -> None:
        self.told = list(told)

    def status(self):
        master, step = self.told.pop(0)
        view = {"master_incarnation": master, "progress": {"committed_step": step}}
        return type("Status", (), {"view": view})


@pytest.mark.parametrize(
    ("told", "problems"),
    [
        ([(1, 3), (1, 4), (1, 4)], []),
        ([(1, 4), (1, 2), (1, 3)], ["step 4 was committed, and then only step 2"]),
        ([(1, 4), (2, 3), (2, 5)], []),
    ],
)
def test_a_committed_step_that_is_gone_is_noticed_unless_a_new_master_has_not_heard_of_it(told, problems):
    job = WatchedJob(StandInHandle(*told))
    for _ in told:
        job.look()
    assert job.problems == problems


@pytest.mark.parametrize(("committed_step", "committed"), [(None, 0), (1, 1), (4, 4)])
def test_steps_are_counted_from_1_as_everywhere(committed_step, committed):
    assert Look(view={"progress": {"committed_step": committed_step}}).committed == committed
