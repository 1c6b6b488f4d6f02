"""A third party's framework proves its contract with the kit, as the how-to tells its author."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dlrl_conformance import AdapterConformance

HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "test-an-adapter.md").read_text()
WRITTEN: dict[str, Any] = {}
exec(re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)[0], WRITTEN)
AsWritten = WRITTEN["TestAcme"]


class TestAcme(AsWritten):
    """With what it takes to resume."""

    @pytest.fixture(autouse=True)
    def _a_file_to_save_to(self, tmp_path):
        self.saved = tmp_path / "saved.json"

    @property
    def config(self):
        return {**AsWritten.config, "save_to": str(self.saved)}

    def resume_config(self, config):
        return {**config, "resume": True}


class WiderScopes(AsWritten):
    """What acme itself does not declare."""

    def builder(self, config):
        return super().builder(config).role("rollout").failover("job").role("actor").failover("subgraph")


def test_a_role_that_takes_more_with_it_survives_too(ray_2_nodes_8_gpus, capsys):
    WiderScopes().test_it_survives_every_death()
    told = capsys.readouterr().out
    assert re.search(
        r"\(scope 'job'\), .* restarted 'actor-0', 'actor-1', 'rollout-0', 'rollout-1', 'trainer': as", told
    )
    assert re.search(r"\(scope 'subgraph'\), .* restarted 'actor-0', 'actor-1'.*: as expected", told)


def test_the_how_to_names_every_test():
    tests = {name for name in vars(AdapterConformance) if name.startswith("test_")}
    assert set(re.findall(r"^\| `(test_\w+)`", HOW_TO, re.MULTILINE)) == tests
