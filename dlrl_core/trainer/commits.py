"""Commits: a step as a transaction. What is committed survives; what is not is done again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.errors import DlrlError
from dlrl_core.trainer.durable_turns import DurableTurns
from dlrl_core.trainer.roster import GRACE_S, Roster, died_with
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import LOST
from dlrl_core.workload.state_folder import Commit, memory_root

_FILE = "trainer_commit.json"


class Commits:
    """The commits of one trainer. The state of each stateful workload is kept by itself; see StateFolder."""

    def __init__(
        self, roster: Roster, stateful: Sequence[WorkloadHandle], *, run_id: str, known: str | None, durable_every: int
    ) -> None:
        self._roster = roster
        self._stateful = list(stateful)
        self._file = memory_root(run_id) / _FILE
        self._turns = DurableTurns(durable_every)
        self.last: Commit | None = None
        self._known = Commit.from_json(known) if known else None
        roster.stateful = frozenset(workload.name for workload in stateful)
        roster.has_commit = known is not None

    def settle(self) -> None:
        """Find the last commit and bring everybody back to it. What came after it never happened.

        A commit counts if every stateful workload holds it, so it does not matter who of them, or of us, died when.
        """
        self._turns.forget()
        self.last = self._gone_back() if self._stateful else self._newest_known()
        self._roster.has_commit = self.last is not None

    def _gone_back(self) -> Commit | None:
        held = [{commit.id: commit for commit in map(Commit.from_json, texts)} for texts in self._on_all("held")]
        common = set.intersection(*(set(commits) for commits in held))
        last = max((held[0][one] for one in common), key=lambda commit: commit.version, default=None)
        if last is not None:
            self._on_all("restore", last.version)
        elif any(held):
            self._on_all("forget")
        return last

    def _newest_known(self) -> Commit | None:
        """Without state in workloads, the trainer's own file counts, and what it told the Master."""
        found = [self._known] if self._known else []
        if self._file.exists():
            found.append(Commit.from_json(self._file.read_text()))
        return max(found, key=lambda commit: commit.version, default=None)

    def commit(self, step: int, progress: dict[str, Any], *, is_durable: bool) -> Commit:
        """Everything up to this step has happened, once and for all. Returns when all state is written to memory."""
        self._roster.check()
        version = self.last.version + 1 if self.last else 1
        new = Commit(version=version, id=uuid.uuid4().hex, step=step, progress=_checked(progress))
        text = new.to_json()
        # The first one always is durable: whatever is lost later, there is a commit to go back to.
        is_durable = is_durable or new.version == 1
        is_copied = not is_durable and self._turns.takes(new)
        self._turns.heard(self._on_all("save", text, is_copied, self._turns.on_all))
        if not self._stateful:
            self._write(text)
        if is_durable:
            self._on_all("make_durable", new.version)
        self.last, self._roster.has_commit = new, True
        return new

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(text)
        part.replace(self._file)

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        """Call the host's own method on all stateful workloads; a death leads back to the last commit."""
        before = self._roster.version
        refs = [getattr(workload.ray_actor, method).remote(*args) for workload in self._stateful]
        try:
            return ray.get(refs)
        except (RayTaskError, *LOST) as error:
            if not isinstance(error, LOST):
                ray.wait(refs, num_returns=len(refs), timeout=GRACE_S)
            self._roster.heal()
            replaced = self._roster.replaced[before:]
            if replaced or isinstance(error, LOST):
                self._roster.go_back(died_with((replaced or self._stateful)[0], method))
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, DlrlError) else error) from None


def _checked(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as plain JSON: that is what is written, and what comes back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(progress))
    except (TypeError, ValueError) as error:
        raise DlrlError(f"progress given to commit can't be written as JSON: {error}") from None
    return plain
