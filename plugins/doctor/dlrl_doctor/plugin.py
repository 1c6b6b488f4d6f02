"""Registers the commands `dlrl doctor` and `dlrl frameworks`, and the checks of dlrl itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import Command, DoctorCheck, ImportPath

FIRST = ("versions", "plugins")
"""Checks before those of frameworks and of other plugins, in this order."""
LAST = ("ray auth", "machine", "home", "store", "leftovers", "memory", "cluster")
"""Checks after them; 'home', 'memory' and 'cluster' come from other plugins of dlrl."""


@hookimpl
def dlrl_commands() -> dict[str, Command | ImportPath]:
    return {"doctor": "dlrl_doctor.command:doctor", "frameworks": "dlrl_doctor.command:frameworks"}


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {
        "versions": "dlrl_doctor.installed:check_versions",
        "plugins": "dlrl_doctor.installed:check_plugins",
        "ray auth": "dlrl_doctor.ray_auth:check",
        "machine": "dlrl_doctor.machine:check",
        "store": "dlrl_doctor.store:check",
        "leftovers": "dlrl_doctor.leftovers:check",
    }
