"""What a workload's process loads when it starts: each restart waits for it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from dlrl_core.workload.state_keeper import KeeperRequest, late_keeper
from dlrl_state.keeper import NodeMemoryKeeper

LOADED = """
import sys
import dlrl_core.workload.workload_host
from dlrl_core import BaseTrainer, BaseWorkload  # as a module with both classes of a job has it
print(*sys.modules)
"""


def test_a_process_loads_neither_what_only_trainers_need_nor_what_keeps_state():
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout.split()
    trainers = {f"dlrl_core.trainer.{name}" for name in ("commits", "role_group", "workload_directory", "progress")}
    assert "dlrl_core.trainer.base_trainer" in loaded
    assert not {*trainers, "dlrl_state", "pydantic", "omegaconf"}.intersection(loaded)


def test_threads_that_need_the_keeper_at_once_get_the_same_and_waiting_makes_none(monkeypatch):
    made = []
    monkeypatch.setattr(NodeMemoryKeeper, "place", lambda self: made.append(self) or "here", raising=False)
    keeper = late_keeper("dlrl_state.keeper:NodeMemoryKeeper", KeeperRequest(run_id="none", workload="actor-0"))
    keeper.wait()
    assert keeper._made is None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: keeper.place(), range(8)))
    assert len(made) == 8
    assert set(map(id, made)) == {id(keeper._made)}
