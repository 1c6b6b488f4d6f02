"""A third party's framework, in a distribution of its own, from `framework("acme")` to a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXTERNAL = Path(__file__).parents[1] / "external_plugin"


def test_a_framework_from_another_distribution_runs_and_its_plugin_loads_in_every_process(
    cluster_2_nodes_8_gpus, tmp_path, dlrl_home
):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(EXTERNAL)], check=True, timeout=120)
    script = (
        "import json\n"
        "from dlrl_core import RLJobBuilder\n"
        "job = RLJobBuilder().framework('acme').config(['steps=4', 'roles.rollout=2']).build()\n"
        f"print(json.dumps(job.submit('acme', address='{cluster_2_nodes_8_gpus}').value))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(site), "DLRL_HOME": str(dlrl_home)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout.splitlines()[-1])
    assert value["prepared"] == {"trainer": "trainer", "actor": ["actor"], "rollout": ["rollout", "rollout"]}
