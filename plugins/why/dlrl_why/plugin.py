"""Registers the commands `dlrl status` and `dlrl why`, and the check of the cluster's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import Command, DoctorCheck, ImportPath


@hookimpl
def dlrl_commands() -> dict[str, Command | ImportPath]:
    return {"status": "dlrl_why.command:status", "why": "dlrl_why.command:why"}


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"cluster": "dlrl_why.cluster_check:check"}
