"""A job has a plan exactly if it has a place: the planner against all placements, tried one by one."""

from __future__ import annotations

from collections import Counter

from brute_force import can_be_placed, wished_units
from host_units import host_units
from hypothesis import assume, event, given, settings
from place_promises import full_name
from random_jobs import SMALL, Size, clusters, jobs

from dlrl_core.errors import PlanError
from dlrl_core.plan import ClusterView, ExecutionPlan, make_plan
from dlrl_core.plan.problem import Problem
from dlrl_core.plan.search import search
from dlrl_core.spec import JobSpec, problems_of

TIGHT = Size(roles=3, units=5, block=2, nodes=4, devices=2, elastic=0.7, spread=0.5)


@settings(max_examples=300, deadline=None)
@given(jobs(SMALL), clusters(SMALL))
def test_a_job_has_a_plan_exactly_if_it_has_a_place(spec, cluster):
    assume(not problems_of(spec) and len(host_units(spec)) <= 3)
    check(spec, cluster)


@settings(max_examples=200, deadline=None)
@given(jobs(TIGHT), clusters(TIGHT))
def test_an_elastic_job_gets_as_much_as_fits(spec, cluster):
    assume(not problems_of(spec) and len(host_units(spec)) <= 3)
    check(spec, cluster)


@settings(max_examples=200, deadline=None)
@given(jobs(SMALL), clusters(SMALL))
def test_the_search_alone_finds_a_place_exactly_if_there_is_one(spec, cluster):
    """The quick ways come first, so that the search has little left to do; here it has to do everything."""
    assume(not problems_of(spec) and len(host_units(spec)) <= 3)
    wanted = next(wished_units(spec))
    found = search(Problem(spec, cluster), wanted, patience=10**7)
    event("found" if found else "none")
    assert (found is not None) == can_be_placed(spec, cluster, wanted)


def check(spec: JobSpec, cluster: ClusterView) -> None:
    """If there is a plan, its counts have a place and none that are larger have; else no counts have one."""
    accepted = list(wished_units(spec))
    try:
        placed = units_of(spec, make_plan(spec, cluster))
    except PlanError:
        event("refused")
        assert not [units for units in accepted if can_be_placed(spec, cluster, units)]
        return
    event("all that is wanted" if placed == accepted[0] else "less than is wanted")
    assert can_be_placed(spec, cluster, placed)
    larger = [units for units in accepted if units != placed and is_at_least(units, placed)]
    assert not [units for units in larger if can_be_placed(spec, cluster, units)]


def units_of(spec: JobSpec, plan: ExecutionPlan) -> tuple[int, ...]:
    counts = Counter(full_name(workload) for workload in plan.workloads)
    return tuple(counts[unit.first] // unit.seats[unit.first] for unit in host_units(spec))


def is_at_least(units: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return all(one >= other for one, other in zip(units, others, strict=True))
