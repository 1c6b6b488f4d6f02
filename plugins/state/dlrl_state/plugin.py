"""Registers the keeper of committed state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.plugin import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import DoctorCheck, ImportPath, StateKeeperClass


@hookimpl
def dlrl_state_keepers() -> dict[str, StateKeeperClass | ImportPath]:
    return {"node_memory": "dlrl_state.keeper:NodeMemoryKeeper"}


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"memory": "dlrl_state.doctor:check"}
