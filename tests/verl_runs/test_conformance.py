"""verl's adapter keeps the contract of adapters: PPO on Megatron, tensor parallel 2, takes every death."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from verl_job import MEGATRON, builder, overrides

from dlrl_conformance import AdapterConformance
from dlrl_core import RLJobBuilder
from dlrl_core.context import JobView

BESIDE_METRICS = {"step", "seconds", "ended_at"}
"""What an entry of the history has beside what the step reported."""


@pytest.mark.usefixtures("assets", "ray_4_gpus")
class TestVerl(AdapterConformance):
    framework = "verl"
    steps = 24  # short ones: some go by while a process is watched
    needs_framework_to_plan = True  # overrides are composed with verl's own configs
    start_s, recover_s, end_s = 400.0, 300.0, 400.0

    _assets: ClassVar[Path]
    _out: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def assets(cls, tiny_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls._assets, cls._out = tiny_assets, tmp_path_factory.mktemp("conformance")

    @property
    def config(self) -> list[str]:
        return overrides(
            MEGATRON, self._assets, self._out, trainer__total_training_steps=self.steps, trainer__total_epochs=3
        )

    def builder(self, config: Any) -> RLJobBuilder:
        return builder(config)

    def check_result(self, result: Any, before: JobView) -> None:
        """What vLLM samples differs from run to run; how far training came and what it reports does not."""
        assert (result["steps"], result["history"][-1]["step"]) == (self.steps, self.steps)
        assert {*result["history"][-1]} - BESIDE_METRICS == {*before["progress"]["metrics"]} - BESIDE_METRICS
