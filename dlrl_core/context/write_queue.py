"""WriteQueue: writes a job's commits to its store, in order, also through outages of the store.

All commits wait in one line and are written by one thread, which ends when it has been idle for a while. A change
waits for its commit, but only for a limited time: if the store does not answer, the change returns, and the changes
after it return at once. The thread retries until the store answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlrl_core.context.change import JournalEvent
from dlrl_core.context.commits import CommitLine, JobWriter, PendingCommit
from dlrl_core.errors import ContextError, SchemaError, StoreConflictError, StoreError, StoreUnavailableError

_IDLE_S = 10.0
_NOTEWORTHY_S = 5.0
_log = logging.getLogger("dlrl.context")


@dataclass(frozen=True, kw_only=True)
class OutageLimits:
    """How long changes wait for a store that does not answer, how often it is retried, how much may wait."""

    patience_s: float = 1.0
    """How long a change waits for the store before it returns; only the first one of an outage waits."""
    durable_s: float = 15.0
    """How long a change waits that must be in the store."""
    first_pause_s: float = 0.1
    """Before the store is tried again; doubled each time."""
    longest_pause_s: float = 2.0
    most_changes: int = 10_000
    """How many changes may wait; consecutive progress counts once. The next one is refused."""
    most_characters: int = 64_000_000
    """How much text may wait."""


@dataclass(kw_only=True)
class _Outage:
    """From the first commit that could not be written to the moment when all waiting commits are written."""

    store: str
    """The store's label."""
    start: float
    """When that commit was made, by the monotonic clock."""
    cause: str | None = None
    """The last error of the store's client; None while the store is only slow."""
    changes: int = 0
    """How many changes were written after they had waited."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def sentence(self, waiting: int) -> str:
        """For a status: how long it lasts, and how many changes wait."""
        silence = f"the store {self.store} has not answered for {self.seconds:.0f} s"
        return f"{silence}; {waiting} {'change waits' if waiting == 1 else 'changes wait'}"

    def began(self) -> PendingCommit:
        """The journal event of its beginning, which is written after the outage with the waiting commits."""
        message = f"the store {self.store} can't be reached; the job goes on, its changes wait in memory"
        return _event("store_lost", message, time.time() - self.seconds, cause=self.cause)

    def ended(self) -> PendingCommit | None:
        """The journal event of its end; None if the store was only slow for a moment."""
        if self.cause is None and self.seconds < _NOTEWORTHY_S:
            return None
        written = f"{self.changes} {'change was' if self.changes == 1 else 'changes were'} written"
        message = f"the store {self.store} answers again after {self.seconds:.1f} s; {written}"
        return _event("store_back", message, time.time(), seconds=round(self.seconds, 3), changes=self.changes)


class WriteQueue:
    """Commits of one job by one process. `write` is called by one thread at a time, the rest by any.

    A commit that the store refuses, because another process or a newer dlrl wrote, is never tried again. If changes
    had returned before they were written, memory and store have diverged permanently: every later write raises.
    """

    def __init__(self, writer: JobWriter, *, last_seq: int, limits: OutageLimits) -> None:
        self._writer = writer
        self._limits = limits
        self._news = threading.Condition()  # guards the attributes below
        self._line = CommitLine()
        self._thread: threading.Thread | None = None
        self._awaited: PendingCommit | None = None
        self._refusal: Exception | None = None
        self._outage: _Outage | None = None
        self._divergence: ContextError | None = None
        self._is_closing = False
        self._is_closed = False
        self.on_conflict: Callable[[], None] = lambda: None
        """Called when the store reports that another process wrote, before the waiting `write` raises."""
        self.last_seq = last_seq
        """Number of the newest event, including events that wait."""

    @property
    def version(self) -> int:
        """Of the last commit that the store confirmed."""
        return self._writer.version

    @property
    def degraded(self) -> str | None:
        """The outage, or the error after which nothing can be written, in one sentence; None if all is well."""
        with self._news:
            if self._divergence is not None:
                return str(self._divergence)
            return self._outage.sentence(self._line.changes) if self._outage else None

    def write(
        self,
        *,
        puts: Mapping[str, str],
        deletes: Sequence[str] = (),
        events: Sequence[str] = (),
        is_durable: bool = False,
        is_awaited: bool = True,
    ) -> None:
        """Return when the commit is written, or when the store did not answer in time and the commit waits in line.

        Raises the error with which the store refused the commit, which is then removed from the line. With
        `is_durable`, a commit that would have to wait raises StoreUnavailableError; since it may or may not have been
        written, the queue can't be used afterwards. With `is_awaited` False, returns at once: a refusal then ends the
        use of the queue.
        """
        commit = PendingCommit(puts=puts, deletes=deletes, events=events)
        with self._news:
            self._check_usable(commit, is_durable=is_durable)
            self._add(commit)
            if self._outage is None and is_awaited:
                self._await(commit, self._limits.durable_s if is_durable else self._limits.patience_s)
            if is_durable and commit in self._line:
                raise self._diverge(StoreUnavailableError(self._not_written("a change that must be written was not")))

    def close(self, timeout_s: float) -> None:
        """Accept no more commits, write the waiting ones within the time, and raise if some could not be written."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
            self._news.wait_for(lambda: not self._line or self._divergence, timeout_s)
            self._is_closed = True
            self._news.notify_all()
            if self._divergence is not None:
                raise _again(self._divergence)
            if self._line:
                lost = self._not_written(f"given up after {timeout_s:g} s, they are lost")
                raise self._diverge(StoreUnavailableError(lost))

    def fail_for(self, seconds: float) -> None:
        """Chaos: behave for so long as if the store could not be reached."""
        self._writer.fail_for(seconds)

    # ---- used by write and close

    def _check_usable(self, commit: PendingCommit, *, is_durable: bool) -> None:
        if self._divergence is not None:
            raise _again(self._divergence)
        if self._is_closing:
            raise StoreError(f"the context of job '{self._writer.job}' is closed")
        if self._outage is None:
            return
        if is_durable:
            raise StoreUnavailableError(self._not_written("a change that must be written can't join them"))
        room = self._limits.most_characters - self._line.characters
        if len(self._line) >= self._limits.most_changes or commit.characters > room:
            raise StoreUnavailableError(self._not_written("no more may wait, so this change was refused"))

    def _add(self, commit: PendingCommit) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._write_all, name=f"dlrl-store-{self._writer.job}", daemon=True)
            thread.start()  # it waits for the lock; if no thread can be started, nothing has changed
            self._thread = thread
        self._line.add(commit)
        self.last_seq += len(commit.events)
        self._news.notify_all()

    def _await(self, commit: PendingCommit, timeout_s: float) -> None:
        self._awaited = commit
        try:
            self._news.wait_for(lambda: commit not in self._line or self._outage or self._divergence, timeout_s)
        finally:
            self._awaited = None
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        if self._divergence is not None:
            raise _again(self._divergence)
        if commit in self._line:
            self._outage = self._outage or self._outage_since(commit)

    def _outage_since(self, commit: PendingCommit) -> _Outage:
        return _Outage(store=self._writer.store_label, start=commit.made_at)

    def _not_written(self, consequence: str) -> str:
        outage = self._outage or self._outage_since(self._line.first)
        cause = f": {outage.cause}" if outage.cause else ""
        return f"job '{self._writer.job}': {outage.sentence(self._line.changes)}; {consequence}{cause}"

    def _diverge(self, error: ContextError) -> ContextError:
        self._divergence = error
        self._news.notify_all()
        return error

    # ---- the thread

    def _write_all(self) -> None:
        pause_s = self._limits.first_pause_s
        while (commit := self._next()) is not None:
            try:
                lost = self._writer.write(commit)
            except StoreUnavailableError as error:
                self._on_failure(commit, error)
                self._rest(pause_s)
                pause_s = min(2 * pause_s, self._limits.longest_pause_s)
            except Exception as error:  # noqa: BLE001 - a plugin's store may raise anything, and nothing else catches it
                self._on_refusal(commit, error)
            else:
                pause_s = self._limits.first_pause_s
                if lost:
                    self._on_loss(lost)
                else:
                    self._on_written(commit)

    def _next(self) -> PendingCommit | None:
        """The next commit; None to end the thread: the queue is closed, diverged, or was idle for a while."""
        with self._news:
            self._news.wait_for(lambda: self._line or self._is_closed or self._divergence, _IDLE_S)
            if self._line and not self._is_closed and self._divergence is None:
                return self._line.try_first()
            self._thread = None
            return None

    def _on_written(self, commit: PendingCommit) -> None:
        with self._news:
            self._line.drop_first()
            if self._outage is not None:
                self._outage.changes += commit.changes
                if not self._line and self._divergence is None:
                    self._end(self._outage)
            self._news.notify_all()

    def _end(self, outage: _Outage) -> None:
        self._outage = None
        event = outage.ended()
        if event is not None:
            _log.info("job '%s': the store %s answers again", self._writer.job, outage.store)
            self._add(event)

    def _on_loss(self, lost: Sequence[PendingCommit]) -> None:
        store = self._writer.store_label
        _log.warning("job '%s': the store %s lost %s of its commits", self._writer.job, store, len(lost))
        with self._news:
            self._line.put_back(lost)
            self._add(_rewound(store, len(lost)))

    def _on_failure(self, commit: PendingCommit, error: StoreUnavailableError) -> None:
        with self._news:
            self._outage = self._outage or self._outage_since(commit)
            is_new = self._outage.cause is None
            self._outage.cause = str(error)
            if is_new:
                _log.warning("job '%s' goes on without its store: %s", self._writer.job, error)
                self._add(self._outage.began())
            self._news.notify_all()

    def _rest(self, pause_s: float) -> None:
        with self._news:
            if self._is_closing:
                self._news.wait_for(lambda: self._is_closed, self._limits.first_pause_s)
            else:
                self._news.wait_for(lambda: self._is_closing, pause_s)

    def _on_refusal(self, commit: PendingCommit, error: Exception) -> None:
        """The store will never accept this commit: raise in the `write` that waits for it, else report divergence."""
        if isinstance(error, StoreConflictError):
            self.on_conflict()
        with self._news:
            if commit is self._awaited and self._outage is None:
                self._line.drop_first()
                self.last_seq -= len(commit.events)
                self._refusal = error
                self._news.notify_all()
                return
            self._diverge(self._divergence_by(error))
            _log.error("%s", self._divergence)

    def _divergence_by(self, error: Exception) -> ContextError:
        kind = next((one for one in (SchemaError, StoreConflictError) if isinstance(error, one)), StoreError)
        text = str(error) if isinstance(error, ContextError) else f"{type(error).__name__}: {error}"
        return kind(
            f"job '{self._writer.job}' can't be written any more by this process, {self._line.changes} of its changes "
            f"are lost, made while the store {self._writer.store_label} did not answer: {text}"
        )


def _rewound(store: str, commits: int) -> PendingCommit:
    """The journal event for commits that the store had confirmed and lost."""
    what = f"{commits} {'commit' if commits == 1 else 'commits'}"
    message = f"the store {store} came back without the last {what} it had confirmed; written again"
    return _event("store_rewound", message, time.time(), commits=commits)


def _event(kind: str, message: str, at: float, **data: object) -> PendingCommit:
    event = JournalEvent.model_validate({"kind": kind, "message": message, "subject": "job", "at": at, "data": data})
    return PendingCommit(events=[event.to_text()], changes=0)


def _again(error: ContextError) -> ContextError:
    """A copy: an exception that is raised twice collects the tracebacks of both."""
    return type(error)(str(error))
