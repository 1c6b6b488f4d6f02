"""The way back: which commit every rank can have, from its node, durable storage or a neighbour; and restoring it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from dlrl_core.errors import CommitLostError
from dlrl_core.trainer.workload_directory import WorkloadDirectory, WorkloadHandle
from dlrl_core.workload.state_keeper import Commit, HeldCommits, Neighbour

_TRIES = 3
"""How often a rank tries to fetch a commit before an older one is looked for."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What the ranks hold, and what other nodes hold for them."""

    held: Mapping[str, HeldCommits]
    copies: Mapping[str, Mapping[str, WorkloadHandle]]
    """Of each rank, by the id of a commit, a process on whose node a copy of it is."""
    commits: Mapping[str, Commit]

    def common(self) -> Commit | None:
        """The newest commit that each rank can have."""
        can_have = [one.commits.keys() | self.copies.get(name, {}).keys() for name, one in self.held.items()]
        ids = set.intersection(*map(set, can_have)) if can_have else set()
        return max((self.commits[id_] for id_ in ids), key=lambda commit: commit.version, default=None)


@dataclass
class CommitSearch:
    """One way back. Nothing is removed on it."""

    directory: WorkloadDirectory
    stateful: Sequence[WorkloadHandle]
    known: Commit | None
    """The last commit that is known to have counted."""
    newest: int = 0
    """The highest version that any rank has."""
    loss: str | None = None
    """In one sentence, if the commit that was restored is older than one that counted."""
    _damaged: list[str] = field(default_factory=list)
    _failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a rank could not fetch a commit from another node."""

    def restore(self) -> Commit | None:
        """Restore the newest commit that all ranks can have; returns it. None if no commit has ever counted.

        Raises CommitLostError if one has, and none is left.
        """
        while True:
            found = self._look()
            last = found.common()
            if last is None:
                self._check_none_lost(found)
                return None
            damages = self._fetch(last, found) or [one for one in self._ask("damage", last.id) if one is not None]
            if not damages:
                self._note_loss(last, found)
                self._ask("restore", last.id, self.directory.lease.term)
                return last
            self._damaged += damages
            self.known = self.known or last

    def _look(self) -> _Found:
        answers: list[HeldCommits] = self._ask("keeper", "held")
        held = {one.name: answer for one, answer in zip(self.stateful, answers, strict=True)}
        commits = {id_: text for one in answers for id_, text in one.commits.items()}
        lacking = [name for name, one in held.items() if not one.commits or commits.keys() - one.commits.keys()]
        copies: dict[str, dict[str, WorkloadHandle]] = {}
        for holder, name, answer in self._elsewhere(lacking):
            commits |= answer.commits
            ids = [id_ for id_ in answer.commits if self._failures[name, id_] < _TRIES]
            copies.setdefault(name, {}).update(dict.fromkeys(ids, holder))
        found = {id_: Commit.from_json(text) for id_, text in commits.items()}
        self.newest = max([self.newest, *(commit.version for commit in found.values())])
        return _Found(held=held, copies=copies, commits=found)

    def _elsewhere(self, names: Sequence[str]) -> list[tuple[WorkloadHandle, str, HeldCommits]]:
        """What each node holds of these workloads, if there are several nodes; one process of each is asked."""
        nodes = {one.node_id: one for one in self.directory.workloads}
        if not names or len(nodes) < 2:
            return []
        holders = list(nodes.values())
        asked = ray.put(list(names))  # of thousands of ranks, that is not sent to each node by this process
        answers: list[dict[str, HeldCommits]] = self.directory.ask_all(holders, "keeper", "held_for", asked)
        told = zip(holders, answers, strict=True)
        return [(holder, name, held) for holder, answer in told for name, held in answer.items()]

    def _fetch(self, last: Commit, found: _Found) -> list[str]:
        """Have the ranks that hold no version of the commit copy one from another node; returns what went wrong."""
        lacking = [one for one in self.stateful if last.id not in found.held[one.name].commits]
        holders = [found.copies[one.name][last.id] for one in lacking]
        keep = [id_ for id_ in found.commits if all(id_ in one.commits for one in found.held.values())]
        fetch = self.directory.lease.signed("fetch")
        refs = [
            one.ray_actor.keeper.remote(fetch, last.id, keep, Neighbour(name=holder.name, ray_actor=holder.ray_actor))
            for one, holder in zip(lacking, holders, strict=True)
        ]
        answers: list[str | None] = self.directory.answers(refs, "fetch", lacking)
        failed = [(one, why) for one, why in zip(lacking, answers, strict=True) if why is not None]
        self._failures.update((one.name, last.id) for one, _ in failed)
        return [why for _, why in failed]

    def _check_none_lost(self, found: _Found) -> None:
        """Raise CommitLostError, unless no commit has ever counted."""
        counted = {id_ for one in found.held.values() for id_ in one.counted}
        if self.known is None and not counted:
            return
        missing = [f"'{name}' in '{one.place}'" for name, one in found.held.items() if not counted & one.commits.keys()]
        holders = len(found.held) - len(missing)
        step = f" of step {self.known.step + 1}" if self.known else ""
        raise CommitLostError(
            f"the commit{step} is lost: {holders} of {len(found.held)} ranks hold one, and none that all hold; "
            f"missing at {', '.join(missing[:8]) or 'none, but they hold different ones'}"
        )

    def _note_loss(self, last: Commit, found: _Found) -> None:
        if self.known is None or self.known.version <= last.version:
            return
        missing = [
            f"'{name}' has it not in '{one.place}'"
            for name, one in found.held.items()
            if self.known.id not in one.commits
        ]
        lost = f"the commit of step {self.known.step + 1} is lost"
        self.loss = f"{lost}, training goes on after step {last.step + 1}: {'; '.join([*self._damaged, *missing][:4])}"

    def _ask(self, method: str, *args: Any) -> list[Any]:
        return self.directory.ask_all(self.stateful, method, *args)
