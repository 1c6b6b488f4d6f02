"""How often a trainer commits, as the user says or the budget allows, and which commits are made durable. Pure."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from dlrl_core.errors import DlrlError
from dlrl_core.workload.state_keeper import Commit, CommitOutcome, DurableStatus

_REMEMBERED = 3
_AIM = 0.8
"""The part of a budget that is spent: what a commit disturbs besides, such as caches, is not measured."""


@dataclass(frozen=True, kw_only=True)
class CommitPace:
    """What a user can say about how often to commit."""

    every: int | None = None
    """Each so many steps; None: as the budget allows."""
    budget: float = 0.03
    """The share of the time of training that commits may take."""
    at_least_s: float = 600.0
    """After this time a commit is due, whatever it costs."""


class CommitBudget:
    """Decides at the end of each step whether it is committed. Times are seconds of any clock that never goes back."""

    def __init__(self, pace: CommitPace) -> None:
        self._pace = pace
        self._costs: deque[float] = deque(maxlen=_REMEMBERED)
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)
        self._last: float | None = None
        self._step_ended: float | None = None
        self.skipped = 0
        """Steps since the last commit."""

    @property
    def is_fixed(self) -> bool:
        """Whether the user has said after how many steps."""
        return self._pace.every is not None

    def is_due(self, now: float) -> bool:
        """Whether the step that ends now is to be committed."""
        if self._step_ended is not None:
            self._steps.append(now - self._step_ended)
        self._step_ended = now
        self.skipped += 1
        if self._pace.every is not None:
            return self.skipped >= self._pace.every
        if self._last is None or not self._costs:
            return True
        trained_s = now - self._last
        return trained_s >= self._pace.at_least_s or trained_s * self._pace.budget * _AIM >= self.cost_s

    def committed(self, now: float) -> None:
        """The step was committed, and training goes on now."""
        self._last = self._step_ended = now
        self.skipped = 0

    def costs(self, seconds: float) -> None:
        """What the last commit took from training."""
        self._costs.append(seconds)

    def forget(self) -> None:
        """Training went back to a commit."""
        self._last = self._step_ended = None
        self.skipped = 0

    @property
    def cost_s(self) -> float:
        return sum(self._costs) / len(self._costs) if self._costs else 0.0

    @property
    def steps_apart(self) -> int:
        """How many steps are between two commits, as far as is known: what a death costs at most."""
        if self._pace.every is not None:
            return self._pace.every
        step_s = sum(self._steps) / len(self._steps) if self._steps else 0.0
        budget = self._pace.budget * _AIM
        if not step_s or budget * step_s >= self.cost_s:
            return 1
        return max(1, -int(-min(self.cost_s / budget, self._pace.at_least_s) // step_s))

    def reason(self) -> str:
        """How often, and why, in one sentence."""
        apart = self.steps_apart
        often = "every step" if apart == 1 else f"every {apart} steps"
        if self._pace.every is not None:
            return f"{often}, as asked"
        if not self._costs or not self._steps:
            return f"{often} until their cost is known"
        step_s = sum(self._steps) / len(self._steps)
        return f"{often}: one takes {self.cost_s:.2g} s, a step {step_s:.2g} s, the budget is {self._pace.budget:.2%}"


class DurableTurns:
    """Which commits are copied to durable storage, from the ranks' answers.

    All ranks copy the same versions, so that there is one that all of them have. A rank copies one at a time: while any
    rank still copies, the turn passes to a later commit; if a copy failed, the next commit is tried.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self.error: str | None = None
        self.forget()

    def forget(self) -> None:
        """Training went back; the answers to the next commit tell which versions are left."""
        self.on_all: str | None = None
        """The id of the newest version that all ranks have."""
        self.copying: str | None = None
        """The id of a version that a rank still copies."""
        self._asked: str | None = None
        self._is_due = True
        """The first one is: whatever is lost later, there is a commit to go back to."""

    def takes(self, commit: Commit) -> bool:
        """Whether this one is copied, as soon as it counts."""
        self._is_due = self._is_due or commit.version % self._every == 0
        is_taken = self._is_due and self.copying is None
        if is_taken:
            self._asked, self._is_due = commit.id, False
        return is_taken

    def pass_on(self) -> None:
        """The commit that was to be copied does not count: the next one is copied instead."""
        self._asked, self._is_due = None, True

    def heard(self, answers: Sequence[DurableStatus]) -> None:
        """Take the status of all ranks."""
        if not answers:
            return
        common = frozenset.intersection(*(answer.commits for answer in answers))
        self.on_all = max(common, default=(0, None))[1]
        self.copying = next((answer.copying for answer in answers if answer.copying), None)
        self.error = next((answer.error for answer in answers if answer.error), None)
        if self._asked is not None and self.copying is None and self.on_all != self._asked:
            self._is_due = self._is_due or any(answer.error for answer in answers)
        elif self._asked == self.on_all:
            self._asked = None


def cost_s(outcomes: Sequence[CommitOutcome]) -> float:
    """What a commit took from training: the longest wait of a call, and the machines' processors for the copy."""
    shares: dict[str, float] = {}
    for one in outcomes:
        shares[one.machine] = shares.get(one.machine, 0.0) + one.cpu_s / one.cores
    waited_s = max((one.waited_s + one.interpreter_s for one in outcomes), default=0.0)
    return waited_s + max(shares.values(), default=0.0)


def checked_step(step: Any, newest: int | None) -> int:
    """The step as a number, also one of numpy's. The newest one can be committed again."""
    if isinstance(step, bool) or not isinstance(step, SupportsIndex) or (index := operator.index(step)) < 0:
        raise DlrlError(f"commit got the step {step!r}; it must be the index of a step, a whole number from 0")
    if newest is not None and index < newest:
        raise DlrlError(f"commit got the step {index} after {newest}; go on with {newest + 1}, after committed_step")
    return index
