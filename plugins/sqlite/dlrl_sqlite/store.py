"""SqliteStore: the store that needs no server, one file on a disk of the Master's node.

Several processes of that node may use it at once: while one writes, the others read the last commit (WAL).
It does not work on a network file system; clusters use a store with a server.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dlrl_core.context.redaction import redact
from dlrl_core.context.store import Store, StoredEvent, StoredJob, check_schema, sqlite_url, version_conflict
from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError

SCHEMA = 2
"""Number of the table layout, kept in PRAGMA user_version. Layout 1 had no commit_id."""
APPLICATION_ID = int.from_bytes(b"dlrl", "big")
"""Kept in PRAGMA application_id, so that another program's database is never mistaken for ours."""

_TABLES = (
    # is_live is 1. Earlier versions of dlrl could delete a job, and left its row with 0.
    "CREATE TABLE jobs (job TEXT PRIMARY KEY, version INTEGER NOT NULL, last_seq INTEGER NOT NULL,"
    " is_live INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (job TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (job, key)) WITHOUT ROWID",
    "CREATE TABLE events (job TEXT NOT NULL, seq INTEGER NOT NULL, text TEXT NOT NULL,"
    " PRIMARY KEY (job, seq)) WITHOUT ROWID",
)
_COMMIT_ID = "ALTER TABLE jobs ADD COLUMN commit_id TEXT NOT NULL DEFAULT ''"

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


def open_sqlite(url: str) -> SqliteStore:
    """The store behind the URL; nothing is opened yet. Raises StoreError if the URL names no absolute path."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path.strip("/") or path.endswith("/"):
        raise StoreError(
            f"store url '{redact(url)}' is not 'sqlite://' with an absolute path; "
            "write it like sqlite:///var/lib/dlrl/context.db"
        )
    return SqliteStore(Path(path))


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
            version, last_seq, last_commit_id = _head_of(database, job)
            if commit_id and commit_id == last_commit_id:
                return version
            if version != expected_version:
                raise version_conflict(job, expected=expected_version, found=version)
            database.executemany("DELETE FROM documents WHERE job = ? AND key = ?", ((job, key) for key in deletes))
            documents = ((job, key, text) for key, text in puts.items())
            database.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", documents)
            numbered = ((job, seq, text) for seq, text in enumerate(events, last_seq + 1))
            database.executemany("INSERT INTO events VALUES (?, ?, ?)", numbered)
            database.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, 1, ?)",
                (job, version + 1, last_seq + len(events), commit_id or ""),
            )
        return version + 1

    def load(self, job: str) -> StoredJob | None:
        with self._reading() as database:
            if database is None:
                return None
            version, last_seq, commit_id = _head_of(database, job)
            if not version:
                return None
            documents = dict(database.execute("SELECT key, text FROM documents WHERE job = ?", (job,)).fetchall())
        return StoredJob(version=version, documents=documents, last_seq=last_seq, commit_id=commit_id)

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

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._disconnect()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that ends with commit, or with rollback on any exception."""
        with self._lock, self._as_our_errors():
            if self._inode is None:
                _create_private_file(self.path)
            database = self._connected()
            if self._checked_schema(database) == 0:
                _switch_to_wal(database, self._lock_timeout_s)
            with _transaction(database, "IMMEDIATE"):
                _bring_up_to_date(database, self._checked_schema(database))
                yield database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A view of one commit; None if the file does not exist or nothing was ever committed to it."""
        with self._lock, self._as_our_errors():
            if self._inode is None and not self.path.exists():
                yield None
                return
            database = self._connected()
            with _transaction(database, "DEFERRED"):
                yield database if self._checked_schema(database) else None

    def _connected(self) -> sqlite3.Connection:
        """The connection, once its file is known to be at the path: a commit to a removed file would be lost."""
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
        """A file that is missing may come back with its disk; a different file at its path is not ours."""
        try:
            inode = self.path.stat().st_ino
        except FileNotFoundError:
            raise StoreUnavailableError(f"store '{self.path}' was removed while in use; bring it back") from None
        if self._inode not in (None, inode):
            raise StoreError(f"store '{self.path}' was replaced while in use; restart to use the new one")
        self._inode = inode

    def _checked_schema(self, database: sqlite3.Connection) -> int:
        """Number of the table layout, 0 for none yet. Read each time: a newer dlrl may have changed it."""
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        (application_id,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise SchemaError(f"'{self.path}' is an SQLite database of another program; choose another file")
        check_schema(schema, SCHEMA, f"file '{self.path}'")
        return int(schema)

    @contextmanager
    def _as_our_errors(self) -> Iterator[None]:
        """Raises errors of SQLite, of the system, and of a closed store as ours, with the file's path."""
        if self._is_closed:
            raise StoreError(f"store '{self.path}' is closed")
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
                self._disconnect()  # the files that the connection holds open may not come back
                raise StoreUnavailableError(f"store '{self.path}' can't be read or written: {error}") from error
            raise StoreError(f"store '{self.path}' answered with an error: {error}") from error
        except OSError as error:
            raise StoreUnavailableError(f"store '{self.path}' can't be opened: {error.strerror or error}") from error


def _head_of(database: sqlite3.Connection, job: str) -> tuple[int, int, str]:
    """Version, number of the last event, and id of the last commit; version 0 if the job does not exist."""
    row = database.execute("SELECT * FROM jobs WHERE job = ? AND is_live", (job,)).fetchone()
    if row is None:
        return 0, 0, ""
    _, version, last_seq, _, *commit_id = row
    return version, last_seq, commit_id[0] if commit_id else ""


def _bring_up_to_date(database: sqlite3.Connection, schema: int) -> None:
    """Give an empty file, or one of an older layout, today's tables. Called within a transaction that writes."""
    if schema == SCHEMA:
        return
    for statement in (*(_TABLES if schema == 0 else ()), _COMMIT_ID):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA}")


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
    """Let readers never wait for the writer. SQLite's own lock timeout does not cover this statement."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _create_private_file(path: Path) -> None:
    """Create an empty file with mode 0600, whatever the umask is, and its missing directories with 0700.

    An existing file that is still empty gets this mode too, before its first byte. One with content keeps the mode
    that its owner gave it.
    """
    _create_directories(path.parent)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if path.stat().st_size == 0:
            path.chmod(0o600)
        return
    try:
        os.fchmod(descriptor, 0o600)  # the umask may have cleared the owner's bits too
    finally:
        os.close(descriptor)


def _create_directories(path: Path) -> None:
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:  # another process created it meanwhile
            continue
        directory.chmod(0o700)
