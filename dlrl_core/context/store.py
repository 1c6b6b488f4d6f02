"""Store: the interface of a place for records, chosen by URL. A plugin adds a store by subclassing it.

A store knows jobs by name only. Each job has documents (JSON text by key), a journal of numbered events, and a
version that every commit raises.
"""

from __future__ import annotations

import abc
import os
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from dlrl_core.context.redaction import redact
from dlrl_core.errors import PluginError, SchemaError, StoreConflictError, StoreError

if TYPE_CHECKING:
    from dlrl_core.plugin.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredJob:
    """All documents of a job as of one commit."""

    version: int
    documents: Mapping[str, str]
    last_seq: int
    """Number of the newest journal event, 0 if there is none."""
    commit_id: str = ""
    """The id of that commit; empty if it had none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEvent:
    """One journal event as text. The events of a job are numbered from 1 without gaps."""

    seq: int
    text: str


class Store(abc.ABC):
    """Documents and a journal for each job. Safe for threads; several processes may use the same store.

    Reading from a store that does not exist yet finds nothing and creates nothing. Every failure is a StoreError;
    data of a newer dlrl is a SchemaError and is never written to. A store that can't be reached, or can't write at
    the moment, raises StoreUnavailableError: only then is a commit tried again. Every call ends within seconds.

    There is no way to remove a job: a job that ended is replaced by the next one of its name.
    """

    @property
    def label(self) -> str:
        """The store's name in messages: its URL without user, password and options."""
        return type(self).__name__

    @abc.abstractmethod
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
        """Write all of it or nothing, and return the new version.

        `expected_version` is the version last read or written, 0 for a job that does not exist. If the store has
        another version, another process wrote: raise `version_conflict`. A version is never used twice for a job.

        `commit_id` is for a commit whose reply may get lost. It is kept with the version: if the job's last commit
        has this id, it was written before, and its version is returned without writing again.
        """

    @abc.abstractmethod
    def load(self, job: str) -> StoredJob | None:
        """The documents of one commit, never of two; None if there is no such job."""

    @abc.abstractmethod
    def journal(self, job: str, after_seq: int = 0, limit: int | None = None) -> Sequence[StoredEvent]:
        """Events with a higher number than `after_seq`, oldest first, at most `limit` of them."""

    @abc.abstractmethod
    def jobs(self) -> Sequence[str]:
        """Names of all jobs, sorted."""

    def warnings(self) -> Sequence[Verdict]:
        """Settings of the store that may lose records, for `dlrl doctor`: what was seen, and what to do."""
        return ()

    @abc.abstractmethod
    def close(self) -> None:
        """Release files and connections. Closing twice is allowed; using it afterwards is a StoreError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def version_conflict(job: str, *, expected: int, found: int) -> StoreConflictError:
    """The error of a commit that is not based on the version in the store."""
    seen = f"is at version {found}" if found else "is not there (version 0)"
    if found > expected:
        reason = "somebody else wrote"
    elif found:
        reason = "the store lost what it had confirmed, or it is another one"
    else:
        reason = "somebody deleted it, or the store lost it"
    return StoreConflictError(
        f"job '{job}' {seen} in the store, this process expected version {expected}: {reason}; load the job again"
    )


def check_schema(found: int, reads_up_to: int, where: str) -> None:
    """Raises SchemaError for data of a newer dlrl. `where` names the file or document."""
    if found > reads_up_to:
        raise SchemaError(
            f"job context has schema {found}, this dlrl reads up to {reads_up_to}; resume with a newer dlrl ({where})"
        )


def new_commit_id() -> str:
    return secrets.token_hex(8)


def open_store(url: str) -> Store:
    """The store of a URL: 'sqlite:///absolute/path.db', 'redis://host:6379', or a plugin's scheme.

    Opens no file and no connection yet: a store that is only read creates nothing.
    """
    scheme = _scheme_of(url)
    if not scheme:
        raise StoreError(f"store url '{redact(url)}' has no scheme; write it like sqlite:///var/lib/dlrl/context.db")
    from dlrl_core.plugin import plugin_host

    try:
        opener = plugin_host().store_opener(scheme)
    except PluginError as error:
        raise StoreError(f"store url '{redact(url)}' can't be opened: {error}") from error
    store = opener(url)
    if not isinstance(store, Store):
        raise StoreError(
            f"the plugin for store scheme '{scheme}' returned a {type(store).__name__}; it must return a "
            "dlrl_core.context.Store"
        )
    return store


def default_store_url() -> str:
    """DLRL_STORE, else the SQLite file 'context.db' in DLRL_HOME, which is '~/.dlrl' unless set."""
    if url := os.environ.get("DLRL_STORE"):
        return url
    home = Path(os.environ.get("DLRL_HOME") or "~/.dlrl").expanduser().absolute()
    return sqlite_url(home / "context.db")


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file; special characters of the path are percent-encoded."""
    return f"sqlite://{quote(str(path.absolute()))}"


def _scheme_of(url: str) -> str:
    """Without urlsplit, whose error for some passwords repeats them."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", url)
    return found[0].lower() if found else ""
