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
from dlrl_core.context.store import Store, StoredEvent, StoredJob, version_conflict
from dlrl_core.errors import SchemaError, StoreError

SCHEMA = 1
"""Number of the table layout, kept in PRAGMA user_version."""

APPLICATION_ID = int.from_bytes(b"dlrl", "big")
"""Kept in PRAGMA application_id, so that another program's database is never taken for ours."""

_TABLES = (
    # A deleted job keeps its row with is_live = 0, so that its versions go on and never come again.
    "CREATE TABLE jobs (job TEXT PRIMARY KEY, version INTEGER NOT NULL, last_seq INTEGER NOT NULL,"
    " is_live INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (job TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (job, key)) WITHOUT ROWID",
    "CREATE TABLE events (job TEXT NOT NULL, seq INTEGER NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (job, seq)) WITHOUT ROWID",
)
_UNREADABLE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteStore(Store):
    """Records in one SQLite file, which appears with the first commit, readable by its owner alone."""

    def __init__(self, path: Path, *, lock_timeout_s: float = 30.0) -> None:
        self.path = path.absolute()
        self._lock_timeout_s = lock_timeout_s
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._is_closed = False

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
    ) -> int:
        with self._writing() as database:
            current, version, last_seq = _head(database, job)
            if current != expected_version:
                raise version_conflict(job, expected=expected_version, found=current)
            database.executemany("DELETE FROM documents WHERE job = ? AND key = ?", ((job, key) for key in deletes))
            database.executemany(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                ((job, key, text) for key, text in puts.items()),
            )
            numbered = enumerate(events, last_seq + 1)
            database.executemany("INSERT INTO events VALUES (?, ?, ?)", ((job, seq, text) for seq, text in numbered))
            database.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, 1)", (job, version + 1, last_seq + len(events))
            )
        return version + 1

    def load(self, job: str) -> StoredJob | None:
        with self._reading() as database:
            if database is None:
                return None
            current, _, last_seq = _head(database, job)
            if not current:
                return None
            rows = database.execute("SELECT key, text FROM documents WHERE job = ?", (job,))
            return StoredJob(version=current, documents=dict(rows.fetchall()), last_seq=last_seq)

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
            is_there = database is not None and _head(database, job)[0] > 0
        if not is_there:
            return
        with self._writing() as database:
            database.execute("DELETE FROM documents WHERE job = ?", (job,))
            database.execute("DELETE FROM events WHERE job = ?", (job,))
            database.execute("UPDATE jobs SET is_live = 0, last_seq = 0 WHERE job = ?", (job,))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that ends with commit, or with rollback on any exception."""
        with self._lock, self._naming_the_file():
            self._check_open()
            if self._connection is None:
                create_private_file(self.path)
                self._connect()
            database = self._checked()
            if self._checked_schema(database) == 0:
                _switch_to_wal(database, self._lock_timeout_s)
            with _transaction(database, "IMMEDIATE"):
                if self._checked_schema(database) == 0:
                    _create_tables(database)
                yield database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A view of one commit; None if the file is not there or nothing was ever committed to it."""
        with self._lock, self._naming_the_file():
            self._check_open()
            if self._connection is None and not self.path.exists():
                yield None
                return
            if self._connection is None:
                self._connect()
            database = self._checked()
            with _transaction(database, "DEFERRED"):
                yield database if self._checked_schema(database) else None

    def _connect(self) -> None:
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        self._inode = self.path.stat().st_ino
        self._connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._lock_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.execute("PRAGMA synchronous = FULL")  # act only on what survives a power cut
        self._connection.execute("PRAGMA secure_delete = ON")  # a spec holds secrets: no copies in free pages

    def _checked(self) -> sqlite3.Connection:
        """The connection, if its file is still at the path: a commit to a removed file would be lost."""
        assert self._connection is not None
        try:
            inode = self.path.stat().st_ino
        except FileNotFoundError:
            inode = None
        if inode != self._inode:
            raise StoreError(f"store '{self.path}' was removed or replaced while in use; restart to use the new one")
        return self._connection

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
                raise StoreError(
                    f"store '{self.path}' stayed locked for {self._lock_timeout_s:g} s by another process"
                ) from error
            raise StoreError(f"store '{self.path}' does not answer: {error}") from error
        except OSError as error:
            raise StoreError(f"store '{self.path}' can't be opened: {error.strerror or error}") from error


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


def _create_tables(database: sqlite3.Connection) -> None:
    for statement in _TABLES:
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA}")


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


def _head(database: sqlite3.Connection, job: str) -> tuple[int, int, int]:
    """The job's version as a reader sees it, 0 if it is not there; the last one given out; the last event."""
    row = database.execute("SELECT version, last_seq, is_live FROM jobs WHERE job = ?", (job,)).fetchone()
    if row is None:
        return 0, 0, 0
    version, last_seq, is_live = row
    return (version if is_live else 0), version, last_seq
