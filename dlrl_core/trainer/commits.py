"""Commits: a step as a transaction. What is committed survives; what is not is done again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.errors import DlrlError
from dlrl_core.trainer.workload_directory import GRACE_S, WorkloadDirectory, WorkloadHandle, died_with
from dlrl_core.workload.actors import LOST
from dlrl_core.workload.state_files import Commit, DurableCommits, memory_root

_FILE = "trainer_commit.json"


class Commits:
    """The commits of one trainer. Each stateful workload keeps its own state of them; see StateFolder."""

    def __init__(
        self,
        directory: WorkloadDirectory,
        stateful: Sequence[WorkloadHandle],
        *,
        run_id: str,
        known: str | None,
        durable_every: int,
    ) -> None:
        self._directory = directory
        self._stateful = list(stateful)
        self._file = memory_root(run_id) / _FILE
        self._turns = DurableTurns(durable_every)
        self.last: Commit | None = None
        self._known = Commit.from_json(known) if known else None
        directory.stateful = frozenset(workload.name for workload in stateful)
        directory.has_commit = known is not None

    def restore_last(self) -> None:
        """Find the last commit and restore its state in all workloads; versions after it are removed.

        A commit counts if every stateful workload holds it, whichever of them or of the trainers died when.
        """
        self._turns.forget()
        self.last = self._restore_common() if self._stateful else self._newest_known()
        self._directory.has_commit = self.last is not None

    def _restore_common(self) -> Commit | None:
        held = [{commit.id: commit for commit in map(Commit.from_json, texts)} for texts in self._on_all("held")]
        common = set.intersection(*(set(commits) for commits in held))
        last = max((held[0][one] for one in common), key=lambda commit: commit.version, default=None)
        if last is not None:
            self._on_all("restore", last.version)
        elif any(held):
            self._on_all("forget")
        return last

    def _newest_known(self) -> Commit | None:
        """Without stateful workloads: the newer of the trainer's own file and the commit that the Master knows."""
        found = [self._known] if self._known else []
        if self._file.exists():
            found.append(Commit.from_json(self._file.read_text()))
        return max(found, key=lambda commit: commit.version, default=None)

    def commit(self, step: int, progress: dict[str, Any], *, is_durable: bool) -> Commit:
        """Commit everything up to this step. Returns when all state is in memory; if durable, on durable storage."""
        self._directory.check()
        version = self.last.version + 1 if self.last else 1
        new = Commit(version=version, id=uuid.uuid4().hex, step=step, progress=_checked(progress))
        text = new.to_json()
        # The first one is always durable: whatever is lost later, there is a commit to go back to.
        is_durable = is_durable or new.version == 1
        is_copied = not is_durable and self._turns.takes(new)
        self._turns.heard(self._on_all("save", text, is_copied, self._turns.on_all))
        if not self._stateful:
            self._write(text)
        if is_durable:
            self._on_all("make_durable", new.version)
        self.last, self._directory.has_commit = new, True
        return new

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(text)
        part.replace(self._file)

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of WorkloadHost on all stateful workloads. After a death, raises RestartFit."""
        before = self._directory.version
        refs = [getattr(workload.ray_actor, method).remote(*args) for workload in self._stateful]
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


def _checked(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as plain JSON values, as it is written and read again."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(progress))
    except (TypeError, ValueError) as error:
        raise DlrlError(f"progress given to commit can't be written as JSON: {error}") from None
    return plain


class DurableTurns:
    """Which commits are copied to durable storage, from the ranks' answers to the last commit. Pure.

    All ranks copy the same versions, so that there is one that all of them have. A rank copies one at a time: while any
    rank still copies, the turn passes to a later commit; if a copy failed, the next commit is tried.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self.forget()

    def forget(self) -> None:
        """Training went back; the answers to the next commit tell which versions are left."""
        self.on_all: int | None = None
        """The newest version that all ranks have."""
        self._asked: tuple[int, str] | None = None
        self._is_due = False
        self._is_copying = False

    def takes(self, commit: Commit) -> bool:
        """Whether this one is copied."""
        self._is_due = self._is_due or commit.version % self._every == 0
        is_taken = self._is_due and not self._is_copying
        if is_taken:
            self._asked, self._is_due = (commit.version, commit.id), False
        return is_taken

    def heard(self, answers: Sequence[DurableCommits]) -> None:
        """Take the ranks' answers to a commit."""
        if not answers:
            return
        common = frozenset.intersection(*(answer.commits for answer in answers))
        self.on_all = max((version for version, _ in common), default=None)
        self._is_copying = any(answer.is_copying for answer in answers)
        if self._asked is not None and not self._is_copying:
            self._is_due = self._is_due or self._asked not in common
            self._asked = None
