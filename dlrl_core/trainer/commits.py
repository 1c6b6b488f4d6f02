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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from dlrl_core.context.commits_report import CommitsReport
from dlrl_core.errors import CommitLostError, DlrlError
from dlrl_core.trainer.commit_budget import CommitBudget, CommitPace
from dlrl_core.trainer.workload_directory import GRACE_S, WorkloadDirectory, WorkloadHandle, died_with
from dlrl_core.workload.actors import LOST
from dlrl_core.workload.committed_state import CommitOutcome, HeldCommits
from dlrl_core.workload.durable_state import DurableStatus
from dlrl_core.workload.state_memory import memory_roots, own_folder, run_folders
from dlrl_core.workload.version_folder import Commit

_FILE = "trainer_commit.json"
_LOOK_S = 0.02
_STILL_S = 60.0
"""A copy to durable storage of which no byte was written for so long is given up when its memory is needed."""


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """A commit that has begun and does not count yet."""

    commit: Commit
    refs: list[Any]
    began_s: float
    """How long the trainer waited for its beginning."""
    is_copied: bool


class Commits:
    """The commits of one trainer. Each stateful workload keeps its own state of them; see CommittedState."""

    def __init__(
        self,
        directory: WorkloadDirectory,
        stateful: Sequence[WorkloadHandle],
        *,
        run_id: str,
        known: str | None,
        durable_every: int,
        pace: CommitPace,
        on_news: Callable[[Commit | None, CommitsReport], None] = lambda *_: None,
    ) -> None:
        self._directory = directory
        self._stateful = list(stateful)
        self._file = run_folders(run_id)[0] / _FILE
        self._turns = DurableTurns(durable_every)
        self._budget = CommitBudget(pace)
        self._on_news = on_news
        self._lock = threading.RLock()
        self._pending: _Pending | None = None
        self._newest = 0
        """The highest number that any commit has had."""
        self._size = 0
        self._trouble: str | None = None
        self._durable: tuple[int, float] | None = None
        self._steps: dict[str, int] = {}
        """The step of each commit that may be on durable storage, by id."""
        self.last: Commit | None = None
        """The last commit that was begun or restored."""
        self._counted: Commit | None = None
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
            self.last = self._counted = self._restore_common() if self._stateful else self._newest_known()
            self._newest = max(self._newest, self.last.version if self.last else 0)
            self._directory.has_commit = self.last is not None
            self._tell()

    def _restore_common(self) -> Commit | None:
        damaged: list[str] = []
        while True:
            held: list[HeldCommits] = self._on_all("held")
            found = {id_: Commit.from_json(text) for one in held for id_, text in one.commits.items()}
            self._newest = max([self._newest, *(commit.version for commit in found.values())])
            common = [found[id_] for id_ in found if all(id_ in one.commits for one in held)]
            last = max(common, key=lambda commit: commit.version, default=None)
            if last is None:
                self._check_none_lost(held)
                return None
            damages = [damage for damage in self._on_all("damage", last.id) if damage is not None]
            if not damages:
                self._note_loss(last, held, damaged)
                self._on_all("restore", last.id)
                return last
            damaged += damages
            self._known = self._known or last

    def _check_none_lost(self, held: Sequence[HeldCommits]) -> None:
        """Raise CommitLostError, unless no commit has ever counted."""
        counted = {id_ for one in held for id_ in one.counted}
        if self._known is None and not counted:
            return
        missing = [
            f"'{workload.name}' in '{one.place}'"
            for workload, one in zip(self._stateful, held, strict=True)
            if not counted & one.commits.keys()
        ]
        holders = len(held) - len(missing)
        step = f" of step {self._known.step + 1}" if self._known else ""
        raise CommitLostError(
            f"the commit{step} is lost: {holders} of {len(held)} ranks hold one, and none that all hold; "
            f"missing at {', '.join(missing[:8]) or 'none, but they hold different ones'}"
        )

    def _note_loss(self, last: Commit, held: Sequence[HeldCommits], damaged: Sequence[str]) -> None:
        """Say so if the commit that is restored is older than one that counted."""
        if self._known is None or self._known.version <= last.version:
            return
        missing = [
            f"'{workload.name}' has it not in '{one.place}'"
            for workload, one in zip(self._stateful, held, strict=True)
            if self._known.id not in one.commits
        ]
        lost = f"the commit of step {self._known.step + 1} is lost"
        self._trouble = f"{lost}, training goes on after step {last.step + 1}: {'; '.join([*damaged, *missing][:4])}"

    def _newest_known(self) -> Commit | None:
        """Without stateful workloads: the newer of the trainer's own file and the commit that the Master knows."""
        found = [self._known] if self._known else []
        if self._file.exists():
            found.append(Commit.from_json(self._file.read_text()))
        return max(found, key=lambda commit: commit.version, default=None)

    # ---- committing

    def commit(self, step: int, progress: dict[str, Any], *, is_durable: bool) -> None:
        """Begin to commit everything up to this step, if that is due; if durable, it is, and is waited for."""
        self._directory.check()
        plain = _checked(progress)
        with self._lock:
            is_due = self._budget.is_due(time.perf_counter()) or is_durable
            if not is_due:
                return
            self._conclude()
            if self._is_memory_taken(is_awaited=is_durable or self._budget.is_fixed):
                return
            self._newest += 1
            count = self._counted.count + 1 if self._counted else 1
            new = Commit(version=self._newest, id=uuid.uuid4().hex, step=step, progress=plain, count=count)
            self._begin(new, is_durable=is_durable)
            self._budget.committed(time.perf_counter())

    def _begin(self, new: Commit, *, is_durable: bool) -> None:
        began, text = time.perf_counter(), new.to_json()
        keep = [self._counted.id] if self._counted else []
        is_copied = not is_durable and self._turns.takes(new)
        self._on_all("begin_commit", text, keep)
        self.last = new
        if not self._stateful:
            self._write(text)
            self._count(new)
            return
        refs = [workload.ray_actor.commit_outcome.remote(new.id) for workload in self._stateful]
        seconds = time.perf_counter() - began
        self._pending = _Pending(commit=new, refs=refs, began_s=seconds, is_copied=is_copied)
        if is_durable:
            self._conclude()
            if self._trouble is not None:
                raise DlrlError(self._trouble)
            self._on_all("make_durable", new.id)
            self._turns.heard(self._on_all("durable_status"))
            self._tell()

    def poll(self) -> None:
        """Count the pending commit if all ranks hold it by now. Called by the thread that reports."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            pending = self._pending
            if pending is None or len(ray.wait(pending.refs, num_returns=len(pending.refs), timeout=0)[1]):
                return
            try:
                self._heard(pending, ray.get(pending.refs))
            except (RayTaskError, GetTimeoutError, *LOST):
                return  # the trainer's own thread meets that death
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Training is over: wait for the last commit. A process that died meanwhile is not missed any more."""
        with self._lock:
            if (pending := self._pending) is not None:
                with contextlib.suppress(RayTaskError, *LOST):
                    self._heard(pending, ray.get(pending.refs))

    def _conclude(self) -> None:
        """Wait until the pending commit counts or has failed. After a death, raises RestartFit."""
        if (pending := self._pending) is not None:
            self._heard(pending, self._answers(pending.refs, "commit_outcome"))

    def _heard(self, pending: _Pending, outcomes: Sequence[CommitOutcome]) -> None:
        self._pending = None
        self._size = max((one.size for one in outcomes), default=0)
        self._turns.heard([one.durable for one in outcomes])
        self._budget.costs(pending.began_s + _cost_s(outcomes))
        failed = [
            f"{one.error} (workload '{workload.name}')"
            for workload, one in zip(self._stateful, outcomes, strict=True)
            if one.error is not None
        ]
        self._trouble = failed[0] if failed else None
        if failed:
            if pending.is_copied:
                self._turns.pass_on()
            self.last = self._counted
            self._tell()
            return
        self._count(pending.commit)
        for workload in self._stateful:
            workload.ray_actor.counted.remote(pending.commit.id, pending.is_copied, self._turns.on_all)

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
            answers: list[DurableStatus] = self._on_all("durable_status")
            if any(one.copying and one.still_s > _STILL_S for one in answers):
                self._on_all("abandon_durable")
                answers = self._on_all("durable_status")
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
                durable_step=None if step is None else step + 1,
                durable_at=at,
                is_copying=self._turns.copying is not None,
                durable_trouble=self._turns.error,
            ),
        )

    def _write(self, text: str) -> None:
        own_folder(self._file.parent, below=memory_roots()[0])
        part = self._file.with_suffix(f".{uuid.uuid4().hex}")
        part.write_text(text)
        part.replace(self._file)

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of WorkloadHost on all stateful workloads. After a death, raises RestartFit."""
        return self._answers([getattr(one.ray_actor, method).remote(*args) for one in self._stateful], method)

    def _answers(self, refs: list[Any], method: str) -> list[Any]:
        before = self._directory.version
        try:
            return ray.get(refs)
        except (RayTaskError, *LOST) as error:
            if not isinstance(error, LOST):
                ray.wait(refs, num_returns=len(refs), timeout=GRACE_S)
            self._directory.replace_gone()
            replaced = self._directory.replaced[before:]
            if replaced or isinstance(error, LOST):
                self._directory.go_back(died_with((replaced or self._stateful)[0], method))
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, DlrlError) else error) from None


def _cost_s(outcomes: Sequence[CommitOutcome]) -> float:
    """What a commit took from training: the longest wait of a call, and the machines' processors for the copy."""
    shares: dict[str, float] = {}
    for one in outcomes:
        shares[one.machine] = shares.get(one.machine, 0.0) + one.cpu_s / one.cores
    return max((one.waited_s for one in outcomes), default=0.0) + max(shares.values(), default=0.0)


def _checked(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as plain JSON values, as it is written and read again."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(progress))
    except (TypeError, ValueError) as error:
        raise DlrlError(f"progress given to commit can't be written as JSON: {error}") from None
    return plain


class DurableTurns:
    """Which commits are copied to durable storage, from the ranks' answers. Pure.

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
