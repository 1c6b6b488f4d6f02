"""A job that goes the whole way: built, placed, run, one actor killed, its role restored from a commit, finished."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dlrl_core import BaseTrainer, BaseWorkload, RLJobBuilder

STEPS = 6
KILLED_AT = 3


class WayActor(BaseWorkload):
    """Counts its updates, and kills its own process at one of them, once."""

    def __init__(self, master_handle: Any, config: Any) -> None:
        super().__init__(master_handle, config)
        self.updates = 0

    def update(self, samples: list[int]) -> int:
        killed = Path(self.config.folder) / "killed"
        if self.rank == 0 and self.updates == KILLED_AT and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.updates += 1
        return self.updates

    def save_state(self, path: str) -> None:
        (Path(path) / "state.json").write_text(json.dumps(self.updates))

    def load_state(self, path: str) -> None:
        self.updates = json.loads((Path(path) / "state.json").read_text())


class WayRollout(BaseWorkload):
    """Gives back what it gets."""

    def generate(self, prompts: list[int]) -> list[int]:
        return prompts


class WayTrainer(BaseTrainer):
    """Commits each step; ends with what every actor has counted."""

    def init(self) -> None:
        self.RG_ROLLOUT.generate([0, 1])

    def fit(self) -> list[int]:
        for step in self.steps(STEPS):
            shards = self.RG_ROLLOUT.generate([0, 1, 2, 3])
            self.RG_ACTOR.update([one for shard in shards for one in shard])
            self.commit(step)
        counted: list[int] = self.RG_ACTOR.update([0, 1])
        return counted


def main(folder: str) -> None:
    job = (
        RLJobBuilder()
        .node_num(1)
        .device_per_node(2)
        .config({"folder": folder})
        .commits(every=1)
        .trainer("way_job", "WayTrainer")
        .actor("way_job", "WayActor").total(2).failover("role")
        .rollout("way_job", "WayRollout").total(2).resource({"GPU": 0}).failover("workload")
        .build()
    )  # fmt: skip
    result = job.submit("way")
    if not (Path(folder) / "killed").exists() or result.value != [STEPS + 1, STEPS + 1]:
        sys.exit(f"the job did not go the whole way: it ended with {result.value}")


if __name__ == "__main__":
    main(sys.argv[1])
