"""DLRL_HOME and the store: can this user write there, and can no other user read it?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check(_: DoctorRequest) -> Iterator[Verdict]:
    from dlrl_core.context import SqliteStore, default_store_url, open_store, redact

    url = default_store_url()
    with open_store(url) as store:
        if isinstance(store, SqliteStore):
            yield _folder(store.path.parent)
            yield from _files(store.path)
        jobs = store.jobs()
        yield ok("store", f"{redact(url)} holds {len(jobs)} job{'s' * (len(jobs) != 1)}")
        yield from store.warnings()


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
    """The record of a job holds its whole spec, secrets included."""
    for path in sorted(database.parent.glob(f"{database.name}*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            yield problem("store", f"'{path}' has mode {mode:04o} and may hold secrets", f"run: chmod 600 '{path}'")
