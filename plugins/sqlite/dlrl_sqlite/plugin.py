"""Registers the URL scheme of SQLite files as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import ImportPath, StoreOpener


@hookimpl
def dlrl_stores() -> dict[str, StoreOpener | ImportPath]:
    return {"sqlite": "dlrl_sqlite.store:open_sqlite"}
