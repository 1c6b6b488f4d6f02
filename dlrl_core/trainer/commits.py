"""Commits: a step as a transaction. What is committed survives; what is not is done again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError

from dlrl_core.errors import DlrlError
from dlrl_core.trainer.roster import RestartFit, Roster, is_gone
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import GONE
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
        self._durable_every = durable_every
        self.last: Commit | None = None
        self._known = Commit.from_json(known) if known else None

    def settle(self) -> None:
        """Find the last commit and bring everybody back to it. What came after it never happened.

        A commit counts if every stateful workload holds it, so it does not matter who of them, or of us, died when.
        """
        self.last = self._newest_common() if self._stateful else self._newest_known()
        if self.last is not None and self._stateful:
            self._on_all("restore", self.last.version)

    def _newest_common(self) -> Commit | None:
        held = [{commit.id: commit for commit in map(Commit.from_json, texts)} for texts in self._on_all("held")]
        common = set.intersection(*(set(commits) for commits in held))
        return max((held[0][one] for one in common), key=lambda commit: commit.version, default=None)

    def _newest_known(self) -> Commit | None:
        """Without state in workloads, the trainer's own file counts, and what it told the Master."""
        found = [self._known] if self._known else []
        if self._file.exists():
            found.append(Commit.from_json(self._file.read_text()))
        return max(found, key=lambda commit: commit.version, default=None)

    def commit(self, step: int, progress: dict[str, Any], *, is_durable: bool) -> Commit:
        """Everything up to this step has happened, once and for all. Returns when all state is written to memory."""
        version = self.last.version + 1 if self.last else 1
        new = Commit(version=version, id=uuid.uuid4().hex, step=step, progress=_checked(progress))
        text = new.to_json()
        # The first one always is durable: whatever is lost later, there is a commit to go back to.
        is_durable = is_durable or new.version == 1
        is_copied = is_durable or new.version % self._durable_every == 0
        self._on_all("save", text, is_copied)
        if not self._stateful:
            self._write(text)
        if is_durable:
            self._on_all("make_durable", new.version)
        self.last = new
        return new

    def _write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(text)
        part.replace(self._file)

    def _on_all(self, method: str, *args: Any) -> list[Any]:
        """Call the host's own method on all stateful workloads; a death among them leads back to the last commit."""
        actors = [workload.ray_actor for workload in self._stateful]
        refs = [getattr(actor, method).remote(*args) for actor in actors]
        try:
            return ray.get(refs)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except GONE:
            for workload, actor in zip(self._stateful, actors, strict=True):
                if is_gone(actor):
                    self._roster.replace(workload.name, actor)
            raise RestartFit from None


def _checked(progress: dict[str, Any]) -> dict[str, Any]:
    """Progress as plain JSON: that is what is written, and what comes back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(progress))
    except (TypeError, ValueError) as error:
        raise DlrlError(f"progress given to commit can't be written as JSON: {error}") from None
    return plain
