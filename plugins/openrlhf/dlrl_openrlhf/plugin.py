"""Registers OpenRLHF with dlrl. Imports neither openrlhf nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlrl_core.plugin import ConfigSource, FrameworkAdapter, hookimpl
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.plugin import FrameworkDefaults
    from dlrl_core.plugin.hookspecs import DoctorCheck, ImportPath


@hookimpl
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    return [OpenRLHFAdapter]


@hookimpl
def dlrl_doctor_checks() -> dict[str, DoctorCheck | ImportPath]:
    return {"openrlhf": "dlrl_openrlhf.doctor:check"}


class OpenRLHFAdapter(FrameworkAdapter):
    """OpenRLHF's PPO and its relatives, from the words, the launch script or the YAML that the user has."""

    name = "openrlhf"
    distribution = "openrlhf"
    versions = ">=0.11.2,<0.12"
    extra = "openrlhf"
    description = "PPO and its relatives with DeepSpeed and vLLM"

    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        """What the user said, by OpenRLHF's own names. Works where OpenRLHF is missing; a wrong version is an error."""
        self.check_version()
        from dlrl_openrlhf.config import read

        return read(source)

    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        self.check_version()
        from dlrl_openrlhf.roles import job_of

        return job_of(config)

    def prepare_process(self, role: RoleType | None) -> None:
        """A plan needs no OpenRLHF; a process does."""
        self.check_available()
        from dlrl_openrlhf import cpu

        cpu.prepare()
