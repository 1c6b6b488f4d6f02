"""WriteQueue: the one way from a job's context to its store. It keeps the order, and outlives outages.

All commits stand in one line and are written by one thread, which goes when there is nothing to do. A change
waits for its commit, but not for long: if the store does not answer, the change goes on, and those after
it do so at once. The thread asks until the store is back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from dlrl_core.context.commit_line import CommitLine, PendingCommit
from dlrl_core.context.job_writer import JobWriter
from dlrl_core.context.outage import Outage, OutageLimits, rewound
from dlrl_core.errors import ContextError, SchemaError, StoreConflictError, StoreError, StoreUnavailableError

_IDLE_S = 10.0
_log = logging.getLogger("dlrl.context")


class WriteQueue:
    """Commits of one job by one process. `write` is called by one thread at a time, the rest by any.

    What the store refuses, because somebody else wrote or a newer dlrl did, is never tried again. If changes
    had gone on before, memory and store have parted for good: from then on every write raises.
    """

    def __init__(self, writer: JobWriter, *, last_seq: int, limits: OutageLimits) -> None:
        self._writer = writer
        self._limits = limits
        self._news = threading.Condition()  # held for all that follows
        self._line = CommitLine()
        self._thread: threading.Thread | None = None
        self._awaited: PendingCommit | None = None
        self._refusal: Exception | None = None
        self._outage: Outage | None = None
        self._parting: ContextError | None = None
        self._is_closing = False
        self._is_closed = False
        self.on_conflict: Callable[[], None] = lambda: None
        """Called when somebody else turns out to have written, before anybody who waits hears of it."""
        self.last_seq = last_seq
        """Number of the newest event, those that wait included."""

    @property
    def version(self) -> int:
        """Of the last commit that the store confirmed."""
        return self._writer.version

    @property
    def degraded_since(self) -> float | None:
        outage = self._outage
        return outage.since if outage else None

    @property
    def degraded(self) -> str | None:
        """What is wrong with the way to the store, in one sentence; None if nothing is."""
        with self._news:
            if self._parting is not None:
                return str(self._parting)
            return self._outage.sentence(self._line.changes) if self._outage else None

    def write(
        self,
        *,
        puts: Mapping[str, str],
        deletes: Sequence[str] = (),
        events: Sequence[str] = (),
        is_durable: bool = False,
    ) -> None:
        """Return when it is written, or when the store did not answer in time and it waits in line.

        Raises what the store refused it with; it is out of line then. With `is_durable`, to wait in line is a
        StoreUnavailableError; since it may or may not have been written, the queue is of no use afterwards.
        """
        commit = PendingCommit(puts=puts, deletes=deletes, events=events)
        with self._news:
            self._check_usable(commit, is_durable=is_durable)
            self._add(commit)
            if self._outage is None:
                self._await(commit, self._limits.durable_s if is_durable else self._limits.patience_s)
            if is_durable and commit in self._line:
                raise self._part(StoreUnavailableError(self._not_written("a change that must be written was not")))

    def close(self, timeout_s: float) -> None:
        """Take no more, write what waits within the time, and raise if something is lost with this process."""
        with self._news:
            self._is_closing = True
            self._news.notify_all()
            self._news.wait_for(lambda: not self._line or self._parting, timeout_s)
            self._is_closed = True
            self._news.notify_all()
            if self._parting is not None:
                raise _again(self._parting)
            if self._line:
                raise StoreUnavailableError(self._not_written(f"given up after {timeout_s:g} s, they are lost"))

    def fail_for(self, seconds: float) -> None:
        """Chaos: for so long, be as if the store could not be reached."""
        self._writer.fail_for(seconds)

    # ---- asked by write and close

    def _check_usable(self, commit: PendingCommit, *, is_durable: bool) -> None:
        if self._parting is not None:
            raise _again(self._parting)
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
            thread.start()  # it waits for the lock; if there is no thread to be had, nothing has changed
            self._thread = thread
        self._line.add(commit)
        self.last_seq += len(commit.events)
        self._news.notify_all()

    def _await(self, commit: PendingCommit, timeout_s: float) -> None:
        self._awaited = commit
        try:
            self._news.wait_for(lambda: commit not in self._line or self._outage or self._parting, timeout_s)
        finally:
            self._awaited = None
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        if self._parting is not None:
            raise _again(self._parting)
        if commit in self._line:
            self._outage = self._outage or self._outage_since(commit)

    def _outage_since(self, commit: PendingCommit) -> Outage:
        return Outage.beginning_with(commit, self._writer.store)

    def _not_written(self, consequence: str) -> str:
        outage = self._outage or self._outage_since(self._line.first)
        cause = f": {outage.cause}" if outage.cause else ""
        return f"job '{self._writer.job}': {outage.sentence(self._line.changes)}; {consequence}{cause}"

    def _part(self, error: ContextError) -> ContextError:
        self._parting = error
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
            except Exception as error:  # noqa: BLE001 - a store of others may raise anything, and nobody else would hear it
                self._on_refusal(commit, error)
            else:
                pause_s = self._limits.first_pause_s
                if lost:
                    self._on_loss(lost)
                else:
                    self._on_written(commit)

    def _next(self) -> PendingCommit | None:
        """The next commit; None to end the thread, because all is over or there was nothing to do for a while."""
        with self._news:
            self._news.wait_for(lambda: self._line or self._is_closed or self._parting, _IDLE_S)
            if self._line and not self._is_closed and self._parting is None:
                return self._line.try_first()
            self._thread = None
            return None

    def _on_written(self, commit: PendingCommit) -> None:
        with self._news:
            self._line.drop_first()
            if self._outage is not None:
                self._outage.changes += commit.changes
                if not self._line and self._parting is None:
                    self._end(self._outage)
            self._news.notify_all()

    def _end(self, outage: Outage) -> None:
        self._outage = None
        word = outage.ended()
        if word is not None:
            _log.info("job '%s': the store %s answers again", self._writer.job, outage.store)
            self._add(word)

    def _on_loss(self, lost: Sequence[PendingCommit]) -> None:
        with self._news:
            _log.warning(
                "job '%s': the store %s lost %s of its commits", self._writer.job, self._writer.store, len(lost)
            )
            self._line.put_back(lost)
            self._add(rewound(self._writer.store, len(lost)))

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
        """The store will never take this commit. Whoever waits for it hears so, and memory stays as it was."""
        if isinstance(error, StoreConflictError):
            self.on_conflict()
        with self._news:
            if commit is self._awaited and self._outage is None:
                self._line.drop_first()
                self.last_seq -= len(commit.events)
                self._refusal = error
                self._news.notify_all()
                return
            self._part(self._parted_by(error))
            _log.error("%s", self._parting)

    def _parted_by(self, error: Exception) -> ContextError:
        kind = next((one for one in (SchemaError, StoreConflictError) if isinstance(error, one)), StoreError)
        text = str(error) if isinstance(error, ContextError) else f"{type(error).__name__}: {error}"
        return kind(
            f"job '{self._writer.job}' can't be written any more by this process, {self._line.changes} of its changes "
            f"are lost, made while the store {self._writer.store} did not answer: {text}"
        )


def _again(error: ContextError) -> ContextError:
    """A copy: an exception that is raised twice collects the tracebacks of both."""
    return type(error)(str(error))
