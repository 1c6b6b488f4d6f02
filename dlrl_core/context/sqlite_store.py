"""SqliteStore: the store that needs no server. One file on a disk of the Master's node.

Several processes of that node may use it at once: while one writes, the others read the last commit (WAL).
A network file system is no place for it; clusters use a store with a server.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlrl_core.context.private_file import create_private_file
from dlrl_core.context.schema import check_schema
from dlrl_core.context.sqlite_tables import APPLICATION_ID, SCHEMA, JobHead, bring_up_to_date
from dlrl_core.context.store import Store, StoredEvent, StoredJob, sqlite_url, version_conflict
from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError

_UNREADABLE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_NOW = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)


class SqliteStore(Store):
    """Records in one SQLite file, which appears with the first commit, readable by its owner alone."""

    def __init__(self, path: Path, *, lock_timeout_s: float = 5.0) -> None:
        self.path = path.absolute()
        self._lock_timeout_s = lock_timeout_s
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._is_closed = False

    @property
    def label(self) -> str:
        return sqlite_url(self.path)

    def __repr__(self) -> str:
        return f"SqliteStore('{self.path}')"

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
        with self._writing() as database:
            head = JobHead.of(database, job)
            if commit_id and commit_id == head.commit_id:
                return head.version
            if head.current != expected_version:
                raise version_conflict(job, expected=expected_version, found=head.current)
            database.executemany("DELETE FROM documents WHERE job = ? AND key = ?", ((job, key) for key in deletes))
            database.executemany(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                ((job, key, text) for key, text in puts.items()),
            )
            numbered = enumerate(events, head.last_seq + 1)
            database.executemany("INSERT INTO events VALUES (?, ?, ?)", ((job, seq, text) for seq, text in numbered))
            database.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, 1, ?)",
                (job, head.version + 1, head.last_seq + len(events), commit_id or ""),
            )
        return head.version + 1

    def load(self, job: str) -> StoredJob | None:
        with self._reading() as database:
            if database is None:
                return None
            head = JobHead.of(database, job)
            if not head.current:
                return None
            rows = database.execute("SELECT key, text FROM documents WHERE job = ?", (job,))
            return StoredJob(
                version=head.current,
                documents=dict(rows.fetchall()),
                last_seq=head.last_seq,
                commit_id=head.commit_id,
            )

    def journal(self, job: str, after_seq: int = 0, limit: int | None = None) -> list[StoredEvent]:
        with self._reading() as database:
            if database is None:
                return []
            rows = database.execute(
                "SELECT seq, text FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?",
                (job, after_seq, -1 if limit is None else limit),
            )
            return [StoredEvent(seq=seq, text=text) for seq, text in rows]

    def jobs(self) -> list[str]:
        with self._reading() as database:
            if database is None:
                return []
            return [name for (name,) in database.execute("SELECT job FROM jobs WHERE is_live ORDER BY job")]

    def delete(self, job: str) -> None:
        with self._reading() as database:
            is_there = database is not None and JobHead.of(database, job).current > 0
        if not is_there:
            return
        with self._writing() as database:
            database.execute("DELETE FROM documents WHERE job = ?", (job,))
            database.execute("DELETE FROM events WHERE job = ?", (job,))
            database.execute("UPDATE jobs SET is_live = 0, last_seq = 0 WHERE job = ?", (job,))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._disconnect()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that ends with commit, or with rollback on any exception."""
        with self._lock, self._naming_the_file():
            self._check_open()
            if self._inode is None:
                create_private_file(self.path)
            database = self._connected()
            if self._checked_schema(database) == 0:
                _switch_to_wal(database, self._lock_timeout_s)
            with _transaction(database, "IMMEDIATE"):
                bring_up_to_date(database, self._checked_schema(database))
                yield database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A view of one commit; None if the file is not there or nothing was ever committed to it."""
        with self._lock, self._naming_the_file():
            self._check_open()
            if self._inode is None and not self.path.exists():
                yield None
                return
            database = self._connected()
            with _transaction(database, "DEFERRED"):
                yield database if self._checked_schema(database) else None

    def _connected(self) -> sqlite3.Connection:
        """The connection, if its file is still at the path: a commit to a removed file would be lost."""
        self._check_same_file()
        return self._connection or self._connect()

    def _connect(self) -> sqlite3.Connection:
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        self._connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._lock_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.execute("PRAGMA synchronous = FULL")  # act only on what survives a power cut
        self._connection.execute("PRAGMA secure_delete = ON")  # a spec holds secrets: no copies in free pages
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check_same_file(self) -> None:
        """A file that is gone may come back, with its disk; another one in its place is not ours."""
        try:
            inode = self.path.stat().st_ino
        except FileNotFoundError:
            raise StoreUnavailableError(f"store '{self.path}' was removed while in use; bring it back") from None
        if self._inode not in (None, inode):
            raise StoreError(f"store '{self.path}' was replaced while in use; restart to use the new one")
        self._inode = inode

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"store '{self.path}' is closed")

    def _checked_schema(self, database: sqlite3.Connection) -> int:
        """Number of the table layout, 0 for none yet. Asked each time: a newer dlrl may have come by."""
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        (application_id,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise SchemaError(f"'{self.path}' is an SQLite database of another program; choose another file")
        check_schema(schema, SCHEMA, f"file '{self.path}'")
        return int(schema)

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        """SQLite's and the system's errors as ours, with the file in them."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _UNREADABLE:
                raise SchemaError(
                    f"store '{self.path}' can't be read as a job context: {error}; it was left as it is"
                ) from error
            if code in _LOCKED:
                raise StoreUnavailableError(
                    f"store '{self.path}' stayed locked for {self._lock_timeout_s:g} s by another process"
                ) from error
            if code in _NOT_NOW:
                self._disconnect()  # what the connection holds open may be gone for good
                raise StoreUnavailableError(f"store '{self.path}' can't be read or written: {error}") from error
            raise StoreError(f"store '{self.path}' answered with an error: {error}") from error
        except OSError as error:
            raise StoreUnavailableError(f"store '{self.path}' can't be opened: {error.strerror or error}") from error


@contextmanager
def _transaction(database: sqlite3.Connection, kind: str) -> Iterator[None]:
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _switch_to_wal(database: sqlite3.Connection, timeout_s: float) -> None:
    """Readers then never wait for the writer. SQLite's own lock timeout does not cover this statement."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
