"""The tables of an SQLite file, and how a file of an older layout gets them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

SCHEMA = 2
"""Number of the table layout, kept in PRAGMA user_version. Layout 1 had no commit_id."""

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
_COMMIT_ID = "ALTER TABLE jobs ADD COLUMN commit_id TEXT NOT NULL DEFAULT ''"


def bring_up_to_date(database: sqlite3.Connection, schema: int) -> None:
    """Within a transaction that writes: an empty file, or one of an older layout, gets today's."""
    if schema == SCHEMA:
        return
    for statement in (*(_TABLES if schema == 0 else ()), _COMMIT_ID):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA}")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobHead:
    """The row of a job."""

    current: int = 0
    """The version as a reader sees it, 0 if the job is not there."""
    version: int = 0
    """The last one given out."""
    last_seq: int = 0
    commit_id: str = ""

    @classmethod
    def of(cls, database: sqlite3.Connection, job: str) -> JobHead:
        row = database.execute("SELECT * FROM jobs WHERE job = ?", (job,)).fetchone()
        if row is None:
            return cls()
        _, version, last_seq, is_live, *commit_id = row
        return cls(
            current=version if is_live else 0,
            version=version,
            last_seq=last_seq,
            commit_id=commit_id[0] if commit_id and is_live else "",
        )
