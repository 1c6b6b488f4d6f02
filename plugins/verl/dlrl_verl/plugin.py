"""Registers verl with dlrl. Imports neither verl nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlrl_core.plugin import ConfigSource, FrameworkAdapter, hookimpl
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plugin import FrameworkDefaults
    from dlrl_core.plugin.hookspecs import DoctorCheck, ImportPath

_BELOW_VERL = ("transformers", "tensordict", "datasets")
"""What verl's trainer imports and that looks for no GPU: imported while the workloads start, not after that."""


@hookimpl
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    return [VerlAdapter]


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"verl": "dlrl_verl.doctor:check"}


class VerlAdapter(FrameworkAdapter):
    """verl's PPO and its relatives, from the overrides, the launch script or the YAML that the user has."""

    name = "verl"
    distribution = "verl"
    versions = ">=0.9.1,<0.10"
    extra = "verl"
    description = "PPO and its relatives with FSDP or Megatron and vLLM"

    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        """The config that verl's own command would compose. A whole one needs no verl; a wrong version is an error."""
        self.check_version()
        from dlrl_verl.config import read

        return read(source)

    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        self.check_version()
        from dlrl_verl.roles import job_of

        return job_of(config)

    def prepare_process(self, role: RoleType | None) -> None:
        """A plan needs no verl; a process does. The trainer's never has a GPU: it asks the others whether they do."""
        self.check_available()
        from dlrl_verl import temp_files

        temp_files.prepare()
        if role is None:
            for name in _BELOW_VERL:
                import_module(name)
        else:
            from dlrl_verl import cpu

            cpu.prepare()
