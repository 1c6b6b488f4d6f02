"""A plan of a whole config needs neither verl nor torch; a version that is not supported is told at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from omegaconf import OmegaConf
from verl_sources import SMALL, WHOLE, needs_verl

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_verl.plugin import VerlAdapter

SOURCE = ConfigSource(ConfigKind.MAPPING, WHOLE)
PLAN = (
    "import sys\nfrom dlrl_core.cli.app import main\n"
    "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
    "print(sorted({'torch', 'ray', 'verl', 'vllm', 'hydra'} & set(sys.modules)), file=sys.stderr)"
)


def planned(*words: str) -> tuple[int, str]:
    """How many devices, and what was imported."""
    command = [sys.executable, "-c", PLAN, "plan", "--framework", "verl", "--json", "--", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)["device_count"], ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_a_version_that_is_not_supported_is_refused_when_planning(version, monkeypatch):
    monkeypatch.setattr(VerlAdapter, "installed_version", lambda self: version)

    for ask in (lambda: VerlAdapter().read_config(SOURCE), lambda: VerlAdapter().fill({})):
        with pytest.raises(FrameworkUnavailableError, match=f">=0.9.1,<0.10, installed is {version}; run: pip install"):
            ask()


def test_a_plan_needs_no_verl_but_a_process_does(monkeypatch):
    monkeypatch.setattr(VerlAdapter, "installed_version", lambda self: None)
    adapter = VerlAdapter()

    assert adapter.fill(adapter.read_config(SOURCE)).node_num == 1
    with pytest.raises(FrameworkUnavailableError, match="verl is not installed; run: pip install"):
        adapter.prepare_process(None)


def test_the_command_line_plans_a_whole_yaml_without_torch_ray_verl_or_hydra(tmp_path):
    OmegaConf.save(OmegaConf.create(WHOLE), tmp_path / "ppo.yaml")

    assert planned(str(tmp_path / "ppo.yaml")) == (4, "[]")


@needs_verl
def test_the_command_line_plans_overrides_without_torch_ray_or_verl():
    words = ["python", "-m", "verl.trainer.main_ppo", *SMALL, "trainer.n_gpus_per_node=2"]

    assert planned(*words) == (2, "['hydra']")


@needs_verl
def test_a_clone_of_verl_in_the_current_folder_is_not_taken_for_the_installed_one(tmp_path, monkeypatch):
    from dlrl_verl.config.packaged import config_folder

    (tmp_path / "verl" / "trainer" / "config").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)

    assert not config_folder().is_relative_to(tmp_path)
