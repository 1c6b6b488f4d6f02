"""Registers OpenRLHF with dlrl. Imports neither openrlhf nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import ConfigSource, FrameworkAdapter, FrameworkDefaults, hookimpl


@hookimpl
def dlrl_frameworks() -> list[type[FrameworkAdapter]]:
    return [OpenRLHFAdapter]


class OpenRLHFAdapter(FrameworkAdapter):
    """OpenRLHF by name and version. It can't run a job yet, and says so."""

    name = "openrlhf"
    distribution = "openrlhf"
    versions = ">=0.11.2,<0.12"
    extra = "openrlhf"
    description = "PPO and its relatives with DeepSpeed and vLLM"

    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        self._refuse()

    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.check_available()
        raise FrameworkUnavailableError(
            "framework 'openrlhf' is registered, but this dlrl has no ready-made trainer for it yet; "
            "name trainer and roles yourself, without .framework('openrlhf')"
        )
