"""Registers the URL scheme of SQLite files as a store, and the check of the default store's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import DoctorCheck, ImportPath, StoreOpener


@hookimpl
def dlrl_stores() -> dict[str, StoreOpener | ImportPath]:
    return {"sqlite": "dlrl_sqlite.store:open_sqlite"}


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"home": "dlrl_sqlite.privacy:check"}
