"""Registers the doctor check of what killed engines left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import DoctorCheck, ImportPath


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"engines": "dlrl_vllm.doctor:check"}
