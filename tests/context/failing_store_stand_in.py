"""FailingStoreStandIn: in place of a server that dies, loses answers and forgets at the very moment the test wants."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlrl_core.context import Store, StoredJob
from dlrl_core.context.store import StoredEvent, version_conflict
from dlrl_core.errors import StoreUnavailableError

FAULTS = ("away", "answer lost", "forgets", "forgets more")


@dataclass(frozen=True)
class _Job:
    version: int = 0
    documents: Mapping[str, str] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    commit_id: str = ""


class FailingStoreStandIn(Store):
    """A store in memory. Each commit takes the next fault of a list; when that is empty, all is well.

    Besides, the way to it may be cut for a while, or long: commits arrive, and their answers come when it is open.
    """

    def __init__(self) -> None:
        self._history: dict[str, list[_Job]] = {}
        self._versions = 0
        self._lock = threading.Condition()
        self._way = "open"
        self.faults: deque[str] = deque()
        self.faults_suffered: list[str] = []

    def commit(
        self,
        job: str,
        *,
        expected_version: int,
        puts: Mapping[str, str],
        deletes: Collection[str] = (),
        events: Sequence[str] = (),
        commit_id: str | None = None,
    ) -> int:
        with self._lock:
            if self._way == "cut":
                raise StoreUnavailableError("the way is cut")
            fault = self.faults.popleft() if self.faults else None
            self._suffer(job, fault)
            old = self._last(job)
            if commit_id and commit_id == old.commit_id:
                return old.version
            if old.version != expected_version:
                raise version_conflict(job, expected=expected_version, found=old.version)
            self._versions += 1
            kept = {key: text for key, text in old.documents.items() if key not in deletes}
            new = replace(
                old,
                version=self._versions,
                documents={**kept, **puts},
                events=(*old.events, *events),
                commit_id=commit_id or "",
            )
            self._history.setdefault(job, []).append(new)
            if fault == "answer lost":
                raise StoreUnavailableError("the answer was lost")
            assert self._lock.wait_for(lambda: self._way != "long", 30)
            return new.version

    def make_way(self, way: str) -> None:
        """'open', 'cut' or 'long'."""
        with self._lock:
            self._way = way
            self._lock.notify_all()

    def _suffer(self, job: str, fault: str | None) -> None:
        if fault is None:
            return
        self.faults_suffered.append(fault)
        if fault == "away":
            raise StoreUnavailableError("the server is away")
        if fault.startswith("forgets"):
            forgotten = min(2 if fault.endswith("more") else 1, len(self._history[job]) - 1)
            del self._history[job][len(self._history[job]) - forgotten :]

    def _last(self, job: str) -> _Job:
        return self._history.get(job, [_Job()])[-1]

    def load(self, job: str) -> StoredJob | None:
        with self._lock:
            last = self._last(job)
        if not last.version:
            return None
        return StoredJob(
            version=last.version, documents=last.documents, last_seq=len(last.events), commit_id=last.commit_id
        )

    def journal(self, job: str, after_seq: int = 0, limit: int | None = None) -> list[StoredEvent]:
        texts: Iterable[tuple[int, str]] = enumerate(self._last(job).events, 1)
        return [StoredEvent(seq=seq, text=text) for seq, text in texts if seq > after_seq][:limit]

    def jobs(self) -> list[str]:
        return sorted(self._history)

    def close(self) -> None:
        return
