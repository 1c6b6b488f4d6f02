"""The launch script of the demo is a job of five roles."""

from __future__ import annotations

from pathlib import Path

from dlrl_core import RLJobBuilder, RoleType

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "openrlhf_ppo" / "train_tiny.sh"


def test_the_launch_script_is_a_job_of_all_five_roles_with_its_environment(monkeypatch):
    monkeypatch.setenv("TINY", "/data/tiny")
    spec = RLJobBuilder().framework("openrlhf").config(["bash", str(SCRIPT)]).build().spec

    assert {role.role: role.total for role in spec.roles} == dict.fromkeys(RoleType, 1)
    assert spec.config.plain()["actor"]["model_name_or_path"] == "/data/tiny/policy"
    exported = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    assert spec.global_env == {"NCCL_DEBUG": "WARN", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1", **exported}
