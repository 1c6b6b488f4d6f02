"""A plan needs neither OpenRLHF nor torch; a version that is not supported is told at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from openrlhf_sources import DATA, SMALL

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_openrlhf.config import own_parser
from dlrl_openrlhf.plugin import OpenRLHFAdapter

SOURCE = ConfigSource(ConfigKind.WORDS, tuple(SMALL))


@pytest.mark.parametrize("version", ["0.10.4", "0.12.0"])
def test_a_version_that_is_not_supported_is_refused_when_planning(version, monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "installed_version", lambda self: version)

    for ask in (lambda: OpenRLHFAdapter().read_config(SOURCE), lambda: OpenRLHFAdapter().fill({})):
        with pytest.raises(
            FrameworkUnavailableError, match=f">=0.11.2,<0.12, installed is {version}; run: pip install"
        ):
            ask()


def test_a_plan_needs_no_openrlhf_but_a_process_does(monkeypatch):
    monkeypatch.setattr(OpenRLHFAdapter, "installed_version", lambda self: None)
    monkeypatch.setattr(own_parser, "_command_file", lambda: None)
    adapter = OpenRLHFAdapter()

    assert adapter.fill(adapter.read_config(SOURCE)).node_num == 1
    with pytest.raises(FrameworkUnavailableError, match="openrlhf is not installed; run: pip install"):
        adapter.prepare_process(None)


def test_the_command_line_plans_an_unchanged_script_without_torch_ray_or_openrlhf():
    code = (
        "import sys\nfrom dlrl_core.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({'torch', 'ray', 'openrlhf', 'vllm'} & set(sys.modules)), file=sys.stderr)"
    )
    words = ["plan", "--framework", "openrlhf", "--json", "--", "bash", str(DATA / "arrays.sh")]
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)

    assert json.loads(ran.stdout)["device_count"] == 4
    assert ran.stderr.splitlines()[-1] == "[]"
    assert "hunter2" not in ran.stdout + ran.stderr


def test_a_clone_of_openrlhf_in_the_current_folder_is_not_taken_for_the_installed_one(tmp_path, monkeypatch):
    (tmp_path / "openrlhf" / "cli").mkdir(parents=True)
    (tmp_path / "openrlhf" / "__init__.py").touch()
    (tmp_path / "openrlhf" / "cli" / "train_ppo_ray.py").write_text("raise SystemExit('an old clone')")
    monkeypatch.syspath_prepend(tmp_path)

    assert OpenRLHFAdapter().read_config(SOURCE)
