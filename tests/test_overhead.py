"""What the benchmarks of both frameworks make of the times of steps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.committing import CommitsSeen
from benchmarks.overhead import Times, _times


@dataclass
class AlwaysPlaying:
    """Stands in for a program that is never paused."""

    began = 0.0

    def played_s(self, start: float, end: float) -> float:
        return end - start


LOGGED = [(1, 10.0), (2, 14.0), (3, 15.0), (4, 16.0), (5, 17.5), (6, 18.5), (7, 19.5)]


def test_steps_count_from_when_both_are_warm_until_one_ends():
    found = _times(AlwaysPlaying(), LOGGED, None, since=14.5, end=18.5)
    assert (found.start_s, found.left_out_s, found.committed_s) == (10.0, [1.0, 1.5, 1.0], [])


def test_a_commit_belongs_to_the_step_in_which_it_is_copied():
    commits = CommitsSeen(steps=[1, 4], pace="every 3 steps")
    found = _times(AlwaysPlaying(), LOGGED, commits, since=14.5, end=18.5)
    assert (found.left_out_s, found.committed_s) == ([1.0, 1.0], [1.5])
    assert found.commits == "commits: 1 in 3 steps; every 3 steps"


def test_steps_with_a_commit_count_by_their_share_and_outliers_do_not():
    times = Times(start_s=1.0, left_out_s=[1.0, 1.0, 1.0, 9.0, 1.0, 1.0], committed_s=[1.4, 1.4])
    assert times.step_s == pytest.approx(1.1)
