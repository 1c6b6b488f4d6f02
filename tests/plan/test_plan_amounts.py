"""Shares of devices are exact, and what Ray is asked for adds up to what the device has."""

from __future__ import annotations

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_jobs import cluster, job, role

from dlrl_core.plan import make_plan
from dlrl_core.plan.problem import PLENTY, cut, free_steps, meant, needed_steps
from dlrl_core.roles import RoleType

NAMES = [one.value for one in RoleType]


@pytest.mark.parametrize(
    ("amount", "fraction"),
    [
        (0.0, Fraction(0)),
        (0.5, Fraction(1, 2)),
        (1 / 3, Fraction(1, 3)),
        (2 / 3, Fraction(2, 3)),
        (1 / 7, Fraction(1, 7)),
        (0.1, Fraction(1, 10)),
        (0.3333, Fraction(3333, 10_000)),
        (0.0001, Fraction(1, 10_000)),
        (2.0, Fraction(2)),
    ],
)
def test_a_number_stands_for_the_fraction_that_was_meant(amount, fraction):
    assert meant(amount) == fraction


@pytest.mark.parametrize(
    ("amount", "needed", "free"),
    [(0.1, 1000, 1000), (1 / 3, 3334, 3333), (0.1 + 0.2, 3000, 3000), (64, 640_000, 640_000), (1e-6, 1, 0), (0, 0, 0)],
)
def test_what_is_needed_is_rounded_up_and_what_is_free_down(amount, needed, free):
    assert (needed_steps(amount), free_steps(amount)) == (needed, free)


def test_a_cluster_that_has_enough_has_enough_memory_in_bytes():
    assert free_steps(inf) == PLENTY > needed_steps(10 * 2**50)


@pytest.mark.parametrize("count", range(1, 12))
def test_equal_shares_of_a_device_add_up_to_it_and_differ_by_a_step_at_most(count):
    pieces = cut([Fraction(1, count)] * count)
    assert sum(pieces) == 10_000
    assert max(pieces) - min(pieces) <= 1


@given(st.lists(st.fractions(0, 1, max_denominator=10_000), min_size=1, max_size=6))
def test_shares_are_cut_to_within_a_step_and_their_sum_is_kept(shares):
    pieces = cut(shares)
    assert sum(pieces) == sum(shares) * 10_000 // 1
    assert all(abs(piece - share * 10_000) < 1 for piece, share in zip(pieces, shares, strict=True))


@pytest.mark.parametrize(
    ("asked", "shares", "amounts"),
    [
        ([None] * 3, ["1/3"] * 3, [0.3334, 0.3333, 0.3333]),
        ([1 / 3] * 3, ["1/3"] * 3, [0.3334, 0.3333, 0.3333]),
        ([0.3333] * 3, ["3333/10000"] * 3, [0.3333] * 3),
        ([0.3334] * 3, ["1/3"] * 3, [0.3334, 0.3333, 0.3333]),
        ([2 / 7, None, None], ["2/7", "5/14", "5/14"], [0.2857, 0.3572, 0.3571]),
        ([0.25, None], ["1/4", "3/4"], [0.25, 0.75]),
        ([0.5, 0.25], ["1/2", "1/4"], [0.5, 0.25]),
        ([0.0, None], ["0", "1"], [0.0, 1.0]),
        ([0.0, 0.0], ["0", "0"], [0.0, 0.0]),
        ([0.5], ["1/2"], [0.5]),
        ([2.0], ["2"], [2.0]),
    ],
)
def test_roles_on_one_device_get_the_shares_they_ask_for(asked, shares, amounts):
    names = NAMES[: len(asked)]
    roles = [
        role(name, resource={} if share is None else {"GPU": share}) for name, share in zip(names, asked, strict=True)
    ]
    spec = job(*roles, device_per_node=2, with_collocation=(tuple(names),) if len(names) > 1 else ())
    plan = make_plan(spec, cluster(2))
    assert [workload.share for workload in plan.workloads] == shares
    assert [workload.resources["GPU"] for workload in plan.workloads] == amounts


def test_a_share_reserves_its_whole_device():
    """Nobody who was not asked for sits on it."""
    plan = make_plan(job(role("actor", 2, resource={"GPU": 0.25}), device_per_node=2), cluster(2))
    assert [bundle.resources["GPU"] for bundle in plan.bundles] == [1.0, 1.0]


def test_shares_that_were_rounded_up_still_take_one_device():
    roles = [role(name, resource={"GPU": 0.3334}) for name in NAMES[:3]]
    assert make_plan(job(*roles, with_collocation=(tuple(NAMES[:3]),)), cluster(1)).device_count == 1


def test_a_device_that_is_free_in_part_is_not_used():
    plan = make_plan(job(role("actor", 3), node_num=2, device_per_node=8), cluster(1.5, 2.5))
    assert [bundle.node for bundle in plan.bundles] == [0, 1, 1]


def test_a_job_for_a_described_cluster_can_ask_for_much_memory():
    from dlrl_core.plan import needed_cluster

    memory = float(2**40)
    spec = job(role("actor", resource={"memory": memory}))
    assert needed_cluster(spec).nodes[0].free == {"CPU": 1.0, "GPU": 1.0, "memory": memory}
