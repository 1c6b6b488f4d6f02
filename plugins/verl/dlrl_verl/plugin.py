"""Registers verl with dlrl. Imports neither verl nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import ConfigSource, FrameworkAdapter, FrameworkDefaults, hookimpl


@hookimpl
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    return [VerlAdapter]


class VerlAdapter(FrameworkAdapter):
    """verl by name and version. It can't run a job yet, and says so."""

    name = "verl"
    distribution = "verl"
    versions = ">=0.9.1,<0.10"
    extra = "verl"
    description = "PPO and its relatives with FSDP or Megatron and vLLM"

    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        self._refuse()

    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.check_available()
        raise FrameworkUnavailableError(
            "framework 'verl' is registered, but this dlrl has no ready-made trainer for it yet; "
            "name trainer and roles yourself, without .framework('verl')"
        )
