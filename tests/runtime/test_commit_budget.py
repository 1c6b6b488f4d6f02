"""How often steps are committed: as asked, or as the budget allows."""

from __future__ import annotations

import itertools

import pytest

from dlrl_core.trainer.commit_budget import CommitBudget, CommitPace


def committed_steps(pace: CommitPace, *, step_s: float, cost_s: float, steps: int = 100) -> list[int]:
    """The steps that are committed if each takes so long, and each commit costs so much."""
    budget, now, found = CommitBudget(pace), 0.0, []
    for step in range(1, steps + 1):
        now += step_s
        if budget.is_due(now):
            now += cost_s
            budget.committed(now)
            budget.costs(cost_s)
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("step_s", "cost_s", "apart"), [(10, 0.01, 1), (10, 0.23, 1), (10, 0.25, 2), (1, 0.235, 10), (100, 21.5, 9)]
)
def test_commits_take_at_most_their_share_of_the_time(step_s, cost_s, apart):
    found = committed_steps(CommitPace(at_least_s=1e9), step_s=step_s, cost_s=cost_s)
    assert found[0] == 1
    assert {after - before for before, after in itertools.pairwise(found)} == {apart}
    assert len(found[1:]) * cost_s <= 0.0241 * 100 * step_s, "with something left for what is not measured"


def test_after_a_while_a_commit_is_due_whatever_it_costs():
    found = committed_steps(CommitPace(at_least_s=100.0), step_s=10, cost_s=30)
    assert found[:3] == [1, 11, 21]


def test_what_the_user_says_counts():
    assert committed_steps(CommitPace(every=3), step_s=1, cost_s=100, steps=10) == [3, 6, 9]
    assert committed_steps(CommitPace(every=1), step_s=0.001, cost_s=1, steps=4) == [1, 2, 3, 4]


def test_a_larger_budget_commits_more_often():
    def count(share: float) -> int:
        return len(committed_steps(CommitPace(budget=share, at_least_s=1e9), step_s=1, cost_s=0.2))

    assert count(0.01) < count(0.03) < count(0.26) == 100


def test_the_pace_is_told_with_its_reason():
    budget, now = CommitBudget(CommitPace()), 0.0
    assert budget.reason() == "every step until their cost is known"
    for _ in range(4):
        now += 2.0
        if budget.is_due(now):
            budget.committed(now)
            budget.costs(0.3)
    assert budget.reason() == "every 7 steps: one takes 0.3 s, a step 2 s, the budget is 3.00%"
    assert budget.steps_apart == 7
    asked = CommitBudget(CommitPace(every=7))
    assert (asked.reason(), asked.steps_apart) == ("every 7 steps, as asked", 7)


def test_after_training_went_back_the_next_step_is_committed():
    budget = CommitBudget(CommitPace())
    assert budget.is_due(10.0)
    budget.committed(10.0)
    budget.costs(5.0)
    assert not budget.is_due(11.0)
    budget.forget()
    assert budget.is_due(12.0)
