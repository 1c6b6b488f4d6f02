"""Commits: a step as a transaction. What is committed survives; what is not is done again.

A commit begins on all ranks at once and counts when all of them hold it; until then the one before counts. The trainer
goes on meanwhile. The next commit begins when the last one counts or has failed, so that no rank holds more than two.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.errors import DlrlError
from dlrl_core.trainer.commit_budget import CommitBudget, CommitPace, DurableTurns, checked_step, cost_s
from dlrl_core.trainer.commit_search import CommitSearch
from dlrl_core.trainer.neighbours import Neighbours
from dlrl_core.trainer.role_call import check_unawaited
from dlrl_core.trainer.workload_directory import WorkloadDirectory, WorkloadHandle
from dlrl_core.workload.actors import LOST
from dlrl_core.workload.captured_state import CapturedState
from dlrl_core.workload.state_keeper import Commit, CommitOutcome, DurableStatus, StateKeeper

_LOOK_S = 0.02
_TRY_AGAIN_S = 5.0
_LONGEST_PAUSE_S = 300.0
"""Between two tries to have neighbours copy a commit; twice as long after each that failed."""
_STILL_S = 60.0
"""A copy to durable storage of which no byte was written for so long is given up when its memory is needed."""

_PUSHED_OUT = "the ranks of its neighbour's node need the memory"


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A commit that has begun and does not count yet."""

    commit: Commit
    refs: list[Any]
    began_s: float
    """How long the trainer waited for its beginning."""
    is_copied: bool
    given: frozenset[str]
    """The ranks whose neighbours copy it."""


@dataclass(frozen=True, kw_only=True)
class _Securing:
    """Copies that neighbours make of a commit that counts."""

    id: str
    refs: dict[str, Any]


class NoState:
    """What a commit takes of a trainer without stateful workloads: nothing but its progress."""

    def capture_state(self) -> CapturedState:
        return CapturedState(layout=None, buffers={})


class Commits:
    """The commits of one trainer. Each stateful workload keeps its own state of them; see StateKeeper."""

    def __init__(
        self,
        directory: WorkloadDirectory,
        stateful: Sequence[WorkloadHandle],
        *,
        own: StateKeeper,
        known: str | None,
        neighbours: Neighbours,
        durable_every: int,
        pace: CommitPace,
        on_news: Callable[[Commit | None, CommitsReport], None] = lambda *_: None,
    ) -> None:
        self._directory = directory
        self._stateful = list(stateful)
        self._own = own
        """Keeps the commits of a job without state, on the trainer's node."""
        self._neighbours = neighbours
        self._securing: _Securing | None = None
        self._tried_at = 0.0
        self._pause_s = _TRY_AGAIN_S
        self._turns = DurableTurns(durable_every)
        self._budget = CommitBudget(pace)
        self._on_news = on_news
        self._lock = threading.RLock()
        self._pending: _Pending | None = None
        self._newest = 0
        """The highest number that any commit has had."""
        self._size = 0
        self._trouble: str | None = None
        self._lost_step: int | None = None
        self._durable: tuple[int, float] | None = None
        self._steps: dict[str, int] = {}
        """The step of each commit that may be on durable storage, by id."""
        self.last: Commit | None = None
        """The last commit that was begun or restored."""
        self._counted: Commit | None = None
        self.newest_step: int | None = None
        """The last step given to `commit` or restored, also if its commit was left out."""
        self._known = Commit.from_json(known) if known else None
        directory.stateful = frozenset(workload.name for workload in stateful)
        directory.has_commit = known is not None

    # ---- going back

    def restore_last(self) -> None:
        """Find the last commit that counts and restore its state in all workloads. Nothing is removed for that.

        A commit counts if every stateful workload holds it, whichever of them or of the trainers died when. Raises
        CommitLostError if there was one and none is left that all hold.
        """
        with self._lock:
            self._pending = None
            self._turns.forget()
            self._budget.forget()
            self._securing = None
            self.last = self._counted = self._restored()
            self.newest_step = self.last.step if self.last else None
            self._newest = max(self._newest, self.last.version if self.last else 0)
            self._directory.has_commit = self.last is not None
            self._tell()

    def _restored(self) -> Commit | None:
        if not self._stateful:
            return self._newest_known()
        search = CommitSearch(self._directory, self._stateful, self._known)
        last = search.restore()
        self._known, self._newest = search.known, max(self._newest, search.newest)
        if search.loss is not None:
            self._trouble, self._lost_step = search.loss, search.known.step + 1 if search.known else None
        self._neighbours.forget()
        return last

    def _newest_known(self) -> Commit | None:
        """Without stateful workloads: the newest of what the trainer's node holds and what the Master knows."""
        found = [Commit.from_json(text) for text in self._own.held().commits.values()]
        return max([*found, *([self._known] if self._known else [])], key=lambda commit: commit.version, default=None)

    def check_room(self, expected: Mapping[str, int]) -> None:
        """Before training: raise DlrlError if a node has no room for two versions of what its ranks hold.

        They hold what they can show by now, or what is `expected` of the node, whichever is more: optimizers make most
        of their state at the first step.
        """
        if self._counted is not None or not self._stateful:
            return
        sizes: list[tuple[int, dict[str, int]]] = self._on_all("state_size")
        needs: dict[str, int] = {}
        alike: dict[tuple[str, str, str], int] = {}
        for workload, (own, shared) in zip(self._stateful, sizes, strict=True):
            needs[workload.node_id] = needs.get(workload.node_id, 0) + own
            alike |= {(workload.node_id, workload.role, name): size for name, size in shared.items()}
        for (node, _, _), size in alike.items():
            needs[node] += size
        asked = list({one.node_id: one for one in self._stateful}.values())
        sizes_of = {node: max(size, expected.get(node, 0)) for node, size in needs.items()}
        refs = [one.ray_actor.keeper.remote("check_room", sizes_of[one.node_id]) for one in asked]
        problems = [one for one in self._directory.answers(refs, "check_room", asked) if one is not None]
        if problems:
            raise DlrlError(f"commits have no room: {problems[0]}")

    # ---- committing

    def commit(self, step: int, progress: dict[str, Any], *, is_durable: bool) -> None:
        """Begin to commit everything up to this step, if that is due; if durable, it is, and is waited for."""
        self._directory.check()
        step, plain = checked_step(step, self.newest_step), _checked(progress)
        check_unawaited(self._directory)
        self.newest_step = step
        with self._lock:
            is_due = self._budget.is_due(time.perf_counter()) or is_durable
            is_awaited = is_durable or self._budget.is_fixed
            if not is_due or (self._is_under_way() and not is_awaited):
                return
            self._conclude()
            if self._is_memory_taken(is_awaited=is_awaited):
                return
            check_unawaited(self._directory, is_waiting=True)
            self._newest += 1
            count = self._counted.count + 1 if self._counted else 1
            new = Commit(version=self._newest, id=uuid.uuid4().hex, step=step, progress=plain, count=count)
            self._begin(new, is_durable=is_durable)
            self._budget.committed(time.perf_counter())

    def _begin(self, new: Commit, *, is_durable: bool) -> None:
        began, text = time.perf_counter(), new.to_json()
        keep = [self._counted.id] if self._counted else []
        is_copied = not is_durable and self._turns.takes(new)
        self.last = new
        if not self._stateful:
            self._commit_own(new, keep)
            return
        neighbours = {one.name: self._neighbours.waited_for(one.name) for one in self._stateful}
        term = self._directory.lease.term
        begun = [one.ray_actor.begin_commit.remote(text, keep, neighbours[one.name], term) for one in self._stateful]
        self._directory.answers(begun, "begin_commit", self._stateful)
        refs = [workload.ray_actor.commit_outcome.remote(new.id) for workload in self._stateful]
        seconds = time.perf_counter() - began
        given = frozenset(name for name, neighbour in neighbours.items() if neighbour)
        self._pending = _Pending(commit=new, refs=refs, began_s=seconds, is_copied=is_copied, given=given)
        if is_durable:
            self._conclude()
            if self._trouble is not None:
                raise DlrlError(self._trouble)
            self._keepers("make_durable", new.id)
            self._turns.heard(self._keepers("durable_status"))
            self._tell()

    def _commit_own(self, new: Commit, keep: list[str]) -> None:
        self._own.begin(new, keep, NoState())
        outcome = self._own.outcome(new.id)
        if outcome.error is not None:
            raise DlrlError(outcome.error)
        self._count(new)

    def poll(self) -> None:
        """Count the pending commit if all ranks hold it by now. Called by the thread that reports."""
        if time.monotonic() > self._directory.lease.until or not self._lock.acquire(blocking=False):
            return
        try:
            pending = self._pending
            if pending is None:
                self._secure()
                return
            if not _are_there(pending.refs):
                return
            try:
                self._heard(pending, ray.get(pending.refs))
            except (RayTaskError, GetTimeoutError, *LOST):
                return  # the trainer's own thread meets that death
        finally:
            self._lock.release()

    def _is_under_way(self) -> bool:
        """Whether a rank or a neighbour still copies a commit."""
        refs = [
            *(self._pending.refs if self._pending else ()),
            *(self._securing.refs.values() if self._securing else ()),
        ]
        return bool(refs) and not _are_there(refs)

    def finish(self) -> None:
        """Training is over: wait for the last commit. A death that no thread has met is not missed any more."""
        self._directory.check()
        check_unawaited(self._directory, is_waiting=True)
        with self._lock:
            if (pending := self._pending) is not None:
                with contextlib.suppress(RayTaskError, *LOST):
                    self._heard(pending, ray.get(pending.refs))

    def _conclude(self) -> None:
        """Wait until the pending commit counts or has failed. After a death, raises RestartFit."""
        if self._securing is not None:
            ray.wait(list(self._securing.refs.values()), num_returns=len(self._securing.refs), timeout=_STILL_S)
            self._secure()
            self._securing = None
        if (pending := self._pending) is not None:
            self._heard(pending, self._directory.answers(pending.refs, "commit_outcome", self._stateful))

    def _heard(self, pending: _Pending, outcomes: Sequence[CommitOutcome]) -> None:
        self._pending = None
        self._size = max((one.size for one in outcomes), default=0)
        self._turns.heard([one.durable for one in outcomes])
        self._budget.costs(pending.began_s + cost_s(outcomes))
        failed = [
            f"{one.error} (workload '{workload.name}')"
            for workload, one in self._with(outcomes)
            if one.error is not None
        ]
        self._trouble = failed[0] if failed else None
        copied = {one.name: heard.neighbour_error for one, heard in self._with(outcomes) if one.name in pending.given}
        pushed = dict.fromkeys(frozenset[str]().union(*(one.pushed_out for one in outcomes)), _PUSHED_OUT)
        self._neighbours.heard(copied | pushed, is_last=not failed, is_waited_for=True)
        if failed:
            if pending.is_copied:
                self._turns.pass_on()
            self.last = self._counted
            self._tell()
            return
        self._count(pending.commit)
        for workload in self._stateful:
            term = self._directory.lease.term
            workload.ray_actor.counted.remote(pending.commit.id, pending.is_copied, self._turns.on_all, term)

    def _with(self, outcomes: Sequence[CommitOutcome]) -> Iterable[tuple[WorkloadHandle, CommitOutcome]]:
        return zip(self._stateful, outcomes, strict=True)

    def _secure(self) -> None:
        """Have neighbours copy the last commit where they do not hold it: after a way back, or the loss of one."""
        if self._securing is None:
            without = self._neighbours.without_copy() if self._counted and not self._directory.is_behind else []
            if without and time.monotonic() - self._tried_at > self._pause_s:
                self._tried_at = time.monotonic()
                refs = {name: self._given(name) for name in without}
                self._securing = _Securing(id=self._counted.id if self._counted else "", refs=refs)
            return
        securing = self._securing
        if not _are_there(list(securing.refs.values())):
            return
        self._securing = None
        with contextlib.suppress(RayTaskError, *LOST):  # the trainer's own thread meets that death
            copied = {name: ray.get(ref) for name, ref in securing.refs.items()}
            is_last = self._counted is not None and securing.id == self._counted.id
            self._neighbours.heard(copied, is_last=is_last, is_waited_for=False)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S) if any(copied.values()) else _TRY_AGAIN_S
        self._tell()

    def _given(self, name: str) -> Any:
        assert self._counted is not None
        id_, give = self._counted.id, self._directory.lease.signed("give")
        return self._directory.named(name).ray_actor.keeper.remote(give, id_, [id_], self._neighbours.of(name))

    def _count(self, commit: Commit) -> None:
        self._counted = self._known = commit
        self._steps[commit.id] = commit.step
        self._directory.has_commit = True
        self._tell()

    def _is_memory_taken(self, *, is_awaited: bool) -> bool:
        """Whether a rank still copies a version to durable storage whose memory the new one would need.

        The commit is left out then, and the next step is tried, unless the user has said when to commit: then the copy
        `is_awaited`. A copy that stands still is given up.
        """
        while self._turns.copying not in (None, self._counted.id if self._counted else None):
            answers: list[DurableStatus] = self._keepers("durable_status")
            if any(one.copying and one.still_s > _STILL_S for one in answers):
                self._keepers("abandon_durable")
                answers = self._keepers("durable_status")
            self._turns.heard(answers)
            if not is_awaited:
                return self._turns.copying is not None
            time.sleep(_LOOK_S)
        return False

    def _tell(self) -> None:
        on_all = self._turns.on_all
        if on_all in self._steps and (self._durable is None or self._durable[0] != self._steps[on_all]):
            self._durable = (self._steps[on_all], time.time())
        step, at = self._durable or (None, None)
        self._on_news(
            self._counted,
            CommitsReport(
                pace=self._budget.reason(),
                steps_at_risk=self._budget.steps_apart,
                size=self._size,
                trouble=self._trouble,
                lost_step=self._lost_step,
                nodes=2 if self._neighbours.is_on and not self._neighbours.without_copy() else 1,
                neighbour_trouble=self._neighbours.trouble,
                durable_step=None if step is None else step + 1,
                durable_at=at,
                is_copying=self._turns.copying is not None,
                durable_trouble=self._turns.error,
            ),
        )

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of WorkloadHost on all stateful workloads. After a death, raises RestartFit."""
        return self._directory.ask_all(self._stateful, method, *args)

    def _keepers(self, method: str, *args: Any) -> list[Any]:
        """The same for a method of their StateKeepers."""
        return self._on_all("keeper", self._directory.lease.signed(method), *args)


def _are_there(refs: list[Any]) -> bool:
    return not ray.wait(refs, num_returns=len(refs), timeout=0)[1]


def _checked(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as plain JSON values, as it is written and read again."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(progress))
    except (TypeError, ValueError) as error:
        raise DlrlError(f"progress given to commit can't be written as JSON: {error}") from None
    return plain
