"""Which users can read and write a store's file, for `dlrl doctor`: the record of a job may hold secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check(_: DoctorRequest) -> Iterator[Verdict]:
    """The folder of the default store, and each of its files that other users can read; nothing of another store."""
    from dlrl_core.context import default_store_url
    from dlrl_sqlite.store import open_sqlite

    url = default_store_url()
    if url.partition(":")[0].lower() == "sqlite":
        database = open_sqlite(url).path
        yield _folder(database.parent)
        yield from _files(database)


def _folder(folder: Path) -> Verdict:
    if not folder.exists():
        return _to_be_made(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return problem("home", f"'{folder}' can't be written to", "change its mode or owner, or set DLRL_HOME")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _OTHERS:
        return warning("home", f"'{folder}' has mode {mode:04o}; others can look into it", f"run: chmod 700 '{folder}'")
    return ok("home", f"'{folder}' can be written to, by its owner alone")


def _to_be_made(folder: Path) -> Verdict:
    parent = next(parent for parent in folder.parents if parent.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return ok("home", f"'{folder}' will be made with the first job")
    return problem("home", f"'{folder}' can't be made in '{parent}'", "set DLRL_HOME to a folder you can write to")


def _files(database: Path) -> Iterator[Verdict]:
    for path in sorted(database.parent.glob(f"{database.name}*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            yield problem("store", f"'{path}' has mode {mode:04o} and may hold secrets", f"run: chmod 600 '{path}'")
