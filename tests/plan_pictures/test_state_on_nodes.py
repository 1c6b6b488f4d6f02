"""What the nodes of a plan keep of each role's committed state, and how the plan tells it."""

from __future__ import annotations

import json

import pytest
from picture_plans import ACTOR, CRITIC, planned, role

from dlrl_core import RLJobBuilder
from dlrl_core.errors import SpecError
from dlrl_core.plan import ExecutionPlan
from dlrl_core.spec.state_size import StatePart, StateSize
from dlrl_pages.state_on_nodes import shown_bytes

WORK = "sample_jobs.endings"
OWN = StatePart(size=10)
ALIKE = StatePart(size=100, contents=1)
IN_TURN = StatePart(size=1000, contents=2)
LAST = StatePart(size=7, first_rank=2, ranks=2)


@pytest.mark.parametrize(
    ("part", "ranks", "size"),
    [
        (OWN, [0, 1, 2, 3], 40),
        (ALIKE, [0, 1, 2, 3], 100),
        (ALIKE, [], 0),
        (IN_TURN, [0, 2], 1000),
        (IN_TURN, [0, 1, 2], 2000),
        (LAST, [0, 1, 2], 7),
        (LAST, [2, 3, 4], 14),
        (StatePart(size=5, first_rank=4, ranks=4, contents=2), [3, 4, 6, 8], 5),
    ],
)
def test_a_node_keeps_what_its_ranks_have_alike_once(part, ranks, size):
    assert part.size_on(ranks) == StateSize(parts=(part,)).size_on(iter(ranks)) == size


def two_nodes(**sizes: StateSize) -> ExecutionPlan:
    plan = planned(role(ACTOR, 4, per_node=2), role(CRITIC, 1), node_num=2, device_per_node=3)
    return plan.model_copy(update={"state_sizes": {ACTOR: sizes["actor"], CRITIC: sizes["critic"]}})


def test_the_state_of_a_node_is_that_of_all_its_ranks_and_survives_json():
    plan = two_nodes(
        actor=StateSize(parts=(StatePart(size=4 * 10**9), StatePart(size=10**9, contents=1)), derivation="as tested"),
        critic=StateSize(parts=(StatePart(size=6 * 10**9),), derivation="as told"),
    )

    state = json.loads(plan.in_format("json"))["state"]
    assert [row["node_bytes"] for row in state] == [{"actor": 9 * 10**9, "critic": 6 * 10**9}, {"actor": 9 * 10**9}]
    assert [row["rank_bytes"]["actor"] for row in state] == [5 * 10**9, 5 * 10**9]
    assert [row["bytes_of_2_versions"] for row in state] == [30 * 10**9, 18 * 10**9]
    assert [row["copy_s"] for row in state] == [3.0, 2.5]
    assert str(plan).endswith(
        "state of a commit\n"
        "          a rank  a node\n"
        "  actor   5 GB    9 GB    as tested\n"
        "  critic  6 GB    6 GB    as told\n"
        "  a node needs up to 30 GB of memory for 2 versions; "
        "the copy of a commit takes about 3 s, if each rank copies 2 GB/s"
    )
    assert "<td>9 GB</td><td>as tested</td>" in plan.to_html()
    assert ExecutionPlan.from_json(plan.to_json()) == plan


def test_where_one_size_is_not_known_its_nodes_have_no_sum():
    plan = two_nodes(actor=StateSize(parts=(OWN,)), critic=StateSize(derivation="nobody knows"))

    assert [row["bytes"] for row in json.loads(plan.in_format("json"))["state"]] == [None, 20]
    assert "critic  not known  not known  nobody knows" in str(plan)
    assert "versions" not in str(plan)


def test_a_user_tells_the_bytes_of_each_rank_and_only_roles_that_tell_are_in_the_plan():
    builder = RLJobBuilder().device_per_node(3).trainer(WORK, "Finishes").actor(WORK, "Worker").total(2)
    plan = builder.state_size(10**9).critic(WORK, "Worker").build().plan()

    assert plan.state_sizes == {ACTOR: StateSize(parts=(StatePart(size=10**9),), derivation="as the job says")}
    assert "actor  1 GB    2 GB    as the job says" in str(plan)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("much", "state_size of role 'actor' is a str; it must be a number of bytes"),
        (-1, "must be at least 0"),
        ({"parts": [], "size": 3}, "has the unknown key 'size'"),
    ],
)
def test_a_size_that_is_none_is_a_problem(said, problem):
    with pytest.raises(SpecError, match=problem):
        RLJobBuilder().trainer(WORK, "Finishes").actor(WORK, "Worker").state_size(said).build()


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (999_600, "1 MB"), (106.6e9, "107 GB"), (1.234e12, "1.23 TB"), (2e15, "2000 TB")],
)
def test_sizes_have_three_digits(size, shown):
    assert shown_bytes(size) == shown
