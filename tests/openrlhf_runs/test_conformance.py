"""OpenRLHF's adapter keeps the contract of adapters: PPO with two ranks of actor and critic takes every death."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from openrlhf_job import builder, flags

from dlrl_conformance import AdapterConformance
from dlrl_core import RLJobBuilder
from dlrl_core.context import JobView

BESIDE_METRICS = {"step", "seconds", "ended_at"}
"""What an entry of the history has beside what the step reported."""


@pytest.mark.usefixtures("assets", "ray_8_gpus")
class TestOpenRLHF(AdapterConformance):
    framework = "openrlhf"
    steps = 40
    start_s, recover_s, end_s = 400.0, 300.0, 400.0

    _assets: ClassVar[Path]
    _out: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def assets(cls, tiny_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls._assets, cls._out = tiny_assets, tmp_path_factory.mktemp("conformance")

    @property
    def config(self) -> list[str]:
        return flags(
            self._assets,
            self._out,
            actor__num_gpus_per_node=2,
            critic__num_gpus_per_node=2,
            train__num_episodes=20,
            train__batch_size=32,  # steps of a second or two: they go on while a master restarts
            rollout__batch_size=32,
            rollout__max_new_tokens=32,
            data__max_len=96,
        )

    def builder(self, config: Any) -> RLJobBuilder:
        return builder(config)

    def check_result(self, result: Any, before: JobView) -> None:
        """What vLLM samples differs from run to run; how far training came and what it reports does not."""
        assert (result["steps"], result["history"][-1]["step"]) == (self.steps, self.steps)
        assert {*result["history"][-1]} - BESIDE_METRICS == {*before["progress"]["metrics"]} - BESIDE_METRICS
